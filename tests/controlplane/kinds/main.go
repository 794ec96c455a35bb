// Command kinds writes the table of built-in kinds that the embedded API server reads: a header, a line for
// each kind and a line for each struct type, from the packages of Kubernetes themselves. It also writes the
// columns of their tables.
//
// Usage, from tests/controlplane:
//
//	go run ./kinds table > ../../devcluster/data/kinds.jsonl
//	go run ./kinds columns > ../../devcluster/data/columns.jsonl
//	go run ./kinds samples < kinds/samples.yaml > ../../devcluster/src/kinds/builtin/tests/samples.jsonl
//	go run ./kinds fixtures > ../../devcluster/src/kinds/builtin/tests/fixtures.jsonl
package main

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	command := ""
	if len(os.Args) == 2 {
		command = os.Args[1]
	}
	switch command {
	case "table":
		writeTable(out)
	case "columns":
		writeColumns(out)
	case "samples":
		writeSamples(os.Stdin, out)
	case "fixtures":
		writeFixtures(out)
	default:
		fmt.Fprintln(os.Stderr, "expected one argument: table, columns, samples or fixtures")
		os.Exit(2)
	}
}

func writeTable(out *bufio.Writer) {
	var body bytes.Buffer
	kinds := servedKinds()
	types := newTypes()
	for _, k := range kinds {
		k.As = types.add(k.goType)
		writeLine(&body, k)
	}
	for _, t := range extraTypes() {
		types.add(t)
	}
	types.addDefaults(kinds)
	for _, t := range types.sorted() {
		writeLine(&body, t)
	}
	fmt.Fprintf(out, "{\"release\":%q,\"hash\":\"%x\"}\n", release(), sha256.Sum256(body.Bytes()))
	out.Write(body.Bytes())
}

func writeLine(out interface{ Write([]byte) (int, error) }, value any) {
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	check(encoder.Encode(value))
}

// release returns the version of the Kubernetes module that the table is generated from.
func release() string {
	return modulePlace("{{.Version}}", "k8s.io/kubernetes")
}

// modulePlace returns a property of a module of this build, as printed by the go command.
func modulePlace(format, module string) string {
	text, err := exec.Command("go", "list", "-m", "-f", format, module).Output()
	check(err)
	return strings.TrimSpace(string(text))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// Package lifeline ends a server when the process that started it ends.
package lifeline

import (
	"io"
	"os"
)

// Variable is the environment variable that enables EndWithStdin if its value is 1. It is opt-in, because a
// server started by hand or by envtest has /dev/null as its standard input, which reads as closed from the
// start.
const Variable = "MAINSTAY_END_WITH_STDIN"

// EndWithStdin exits this process as soon as its standard input closes. The starter holds the other end of a
// pipe, and the kernel closes the pipe even if the starter is killed.
func EndWithStdin() {
	if os.Getenv(Variable) != "1" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}

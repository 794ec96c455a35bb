// Package lifeline ties a server's life to that of the process that started it.
package lifeline

import (
	"io"
	"os"
)

// Variable asks for the tie. It is opt-in, because a server started by hand or by envtest has /dev/null
// as its standard input, which reads as closed from the start.
const Variable = "MAINSTAY_END_WITH_STDIN"

// EndWithStdin ends this process at once when its standard input closes: the starter holds the other end
// of a pipe, and the kernel closes it however the starter dies.
func EndWithStdin() {
	if os.Getenv(Variable) != "1" {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
}

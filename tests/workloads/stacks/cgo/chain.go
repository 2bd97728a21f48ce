// A chain of calls from Go into C. Answers `go` with its names, the innermost first; what the runtime puts in between is
// left out.
package main

// void chain_allocates(void);
import "C"

import (
	"bufio"
	"fmt"
	"os"
)

//go:noinline
func chainCallsC(depth int) int {
	if depth > 0 {
		return chainCallsC(depth-1) + 1
	}
	C.chain_allocates()
	return 0
}

func main() {
	input := bufio.NewReader(os.Stdin)
	fmt.Println("ready", os.Getpid())
	input.ReadString('\n')
	chainCallsC(2)
	fmt.Println(`["chain_allocates","main._Cfunc_chain_allocates","main.chainCallsC","main.chainCallsC","main.chainCallsC",` +
		`"main.main","runtime.main"]`)
	input.ReadString('\n')
}

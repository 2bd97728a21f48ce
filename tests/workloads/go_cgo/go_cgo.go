// Memory of C and of Go in one program: for each line `go` it allocates 1000 blocks of 64 bytes by malloc and 200000 Go
// objects of 128; `quit N` ends it.
package main

/*
#include <stdlib.h>

static void* keeps_native(void* next) {
	void** block = malloc(64);
	*block = next;
	return block;
}
*/
import "C"

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"unsafe"
)

type dog struct {
	name [120]byte
	age  int
}

var kennel []*dog
var native unsafe.Pointer

//go:noinline
func makeDogs(count int) {
	for i := 0; i < count; i++ {
		kennel = append(kennel, &dog{age: i})
	}
}

//go:noinline
func keepNative(count int) {
	for i := 0; i < count; i++ {
		native = C.keeps_native(native)
	}
}

func main() {
	var records [1000]runtime.MemProfileRecord
	fmt.Printf("ready %d\n", os.Getpid())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "quit ") {
			code, _ := strconv.Atoi(strings.TrimPrefix(lines.Text(), "quit "))
			os.Exit(code)
		}
		makeDogs(200000)
		keepNative(1000)
		runtime.GC()
		count, _ := runtime.MemProfile(records[:], true)
		fmt.Printf("{\"records\":%d}\n", count)
	}
}

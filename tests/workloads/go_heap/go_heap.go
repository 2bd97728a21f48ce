// A Go heap of known contents: for each line `go` it allocates, collects, and answers with the sums of the runtime's own
// heap profile; `quit N` ends it.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

type dog struct {
	name [120]byte
	age  int
}

var kennel []*dog

//go:noinline
func makeDogs(count int) {
	for i := 0; i < count; i++ {
		kennel = append(kennel, &dog{age: i})
	}
}

//go:noinline
func makeGarbage(count int) {
	for i := 0; i < count; i++ {
		buffer := make([]byte, 10000)
		buffer[i] = 1
	}
}

func answer() {
	var records [1000]runtime.MemProfileRecord
	var memory runtime.MemStats
	runtime.GC()
	runtime.GC()
	count, isWhole := runtime.MemProfile(records[:], true)
	runtime.ReadMemStats(&memory)
	var samples, live int64
	for _, record := range records[:count] {
		samples += record.AllocObjects
		live += record.InUseObjects()
	}
	fmt.Printf("{\"is_whole\":%t,\"samples\":%d,\"live_samples\":%d,\"heap_bytes\":%d}\n",
		isWhole, samples, live, memory.HeapAlloc)
}

func main() {
	fmt.Printf("ready %d\n", os.Getpid())
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "quit ") {
			code, _ := strconv.Atoi(strings.TrimPrefix(lines.Text(), "quit "))
			os.Exit(code)
		}
		makeDogs(200000)
		makeGarbage(5000)
		answer()
	}
}

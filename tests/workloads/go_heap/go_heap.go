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
	"sync"
)

type dog struct {
	name [120]byte
	age  int
}

var kennel []*dog
var last []byte

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
		last = buffer
	}
}

type cat struct {
	paws [6]int
}

var litters [64][]*cat

// On a stack that grows while it allocates.
//
//go:noinline
func makeCats(litter int, count int) int {
	var room [256]byte
	if count == 0 {
		return 0
	}
	room[count%256] = byte(count)
	litters[litter] = append(litters[litter], &cat{})
	return int(room[count%256]) + makeCats(litter, count-1)
}

// Goroutines that go from thread to thread.
func makeLitters() {
	var all sync.WaitGroup
	for litter := range litters {
		all.Add(1)
		go func(litter int) {
			defer all.Done()
			litters[litter] = make([]*cat, 0, 500)
			makeCats(litter, 500)
		}(litter)
	}
	all.Wait()
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
		makeLitters()
		answer()
	}
}

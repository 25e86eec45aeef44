// Go: goroutines, a deep chain, its garbage collector, its own stacks. See truth.h for the lines that declare calls; Go's
// runtime is in the program, hence "rest".
//
//	routines | collect | system
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"syscall"
	"time"
)

// Roots are what Go's runtime itself takes for the outermost frame of a goroutine's stack or of a thread's own.
//= ^runtime.goexit > <rest:go> | main.worker | runtime.main
//= runtime.main > main.main | <rest:go>
//= ^runtime.mstart > <rest:go>
//= ^runtime.mcall > <rest:go>
//= ^runtime.morestack > <rest:go>
//= ^runtime.rt0_go > <rest:go> | runtime.mstart
//= ^_rt0_amd64_linux > <rest:go>
//= ^_rt0_arm64_linux > <rest:go>
//= ^runtime.clone > runtime.mstart
//= <rest:go> > runtime.clone
// Any function may grow its stack, collect garbage, or be told to give way by a signal.
//= * > <rest:go> | <vdso:go> | runtime.morestack
//= <rest:go> > <vdso:go> | runtime.morestack

var sink uint64

//go:noinline
func burn(rounds int) uint64 {
	var sum uint64
	for i := 0; i < rounds; i++ {
		sum = sum*31 ^ uint64(i)
	}
	return sum
}

// Larger than a goroutine's first stack: it is moved while they run.
//
//go:noinline
func deeper(depth int) uint64 {
	var room [64]byte
	room[depth%64] = 1
	var below uint64
	if depth > 0 {
		below = deeper(depth - 1)
	} else {
		below = burn(20000)
	}
	return below + uint64(room[depth%64])
}

//= main.deeper > main.deeper | main.burn

//go:noinline
func worker(rounds int, done chan uint64) {
	for i := 0; i < 20; i++ {
		sink += deeper(i * 3)
	}
	done <- burn(rounds)
}

//= main.worker > main.deeper | main.burn

//go:noinline
func routines() {
	done := make(chan uint64, 8)
	for {
		for i := 0; i < 8; i++ {
			go worker(10000+1000*i, done)
		}
		for i := 0; i < 8; i++ {
			sink += <-done
		}
	}
}

//= main.main > main.routines
// What starts a goroutine is a function of its own, made by the compiler.
//= runtime.goexit > main.routines.func1 > main.worker
//= runtime.goexit > main.routines.func2 > main.worker
//= runtime.goexit > main.routines.func3 > main.worker

type node struct {
	left, right *node
	room        [40]byte
}

//go:noinline
func tree(depth int) *node {
	if depth == 0 {
		return &node{}
	}
	return &node{left: tree(depth - 1), right: tree(depth - 1)}
}

//= main.tree > main.tree

//go:noinline
func less(numbers []int, i, j int) bool {
	return numbers[i]+int(burn(20)&1) < numbers[j]
}

//= main.less > main.burn

//go:noinline
func collect() {
	for n := 1; ; n++ {
		kept := tree(12)
		numbers := make([]int, 200)
		for i := range numbers {
			numbers[i] = (i*7919 + n) % 1000
		}
		sort.Slice(numbers, func(i, j int) bool { return less(numbers, i, j) })
		if kept.left == nil {
			sink++
		}
	}
}

//= main.main > main.collect > main.tree
//= main.collect > <rest:go> > main.collect.func1 > main.less

// Calls of the kernel, the clock (in the vDSO, on the thread's stack), and functions that run there.
//
//go:noinline
func system() {
	var statistics runtime.MemStats
	for n := 0; ; n++ {
		for i := 0; i < 100; i++ {
			sink += uint64(syscall.Getppid())
			sink += uint64(time.Now().Nanosecond())
		}
		if n%64 == 0 {
			runtime.ReadMemStats(&statistics)
		}
		sink += burn(100)
	}
}

//= main.main > main.system > main.burn

func main() {
	fmt.Println("ready")
	if n, _ := os.Stdin.Read(make([]byte, 1)); n != 1 {
		os.Exit(1)
	}
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	switch mode {
	case "routines":
		routines()
	case "collect":
		collect()
	case "system":
		system()
	}
	os.Exit(2)
}

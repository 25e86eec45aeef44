// Goroutines that take turns on one thread because their time is over, from two functions; with any argument one, which follows itself.
package main

import (
	"os"
	"runtime"
	"time"
)

// Asks whether there is stack enough, as all functions with a frame do: there it is told that its time is over.
//
//go:noinline
func step(x uint64) uint64 {
	var room [64]uint64
	for i := range room {
		room[i] = x + uint64(i)
	}
	return room[x%64]*3 + 1
}

//go:noinline
func odd(x uint64) {
	for {
		x = step(x)
	}
}

//go:noinline
func even(x uint64) {
	for {
		x = step(x)
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	if len(os.Args) > 1 {
		go odd(0)
	} else {
		for i := uint64(0); i < 4; i++ {
			go odd(i)
			go even(i)
		}
	}
	time.Sleep(3 * time.Second)
}

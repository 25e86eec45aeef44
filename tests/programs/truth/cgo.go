// Go that calls C: the stack goes from a goroutine's to its thread's.
package main

/*
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline, noclone, noipa, used))

static volatile unsigned long c_sink;

NOINLINE void c_burn(long rounds)
{
	for (long i = 0; i < rounds; i++)
		c_sink += i;
}

NOINLINE long c_middle(long rounds)
{
	volatile char room[100];

	room[rounds & 63] = 1;
	c_burn(rounds);
	return room[rounds & 63];
}

NOINLINE long c_enter(long rounds)
{
	long result = c_middle(rounds);

	c_sink += result;
	return result;
}
*/
import "C"

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

//= ^runtime.goexit > <rest:go> | runtime.main
//= runtime.main > main.main | <rest:go>
//= ^runtime.mstart > <rest:go>
//= ^runtime.mcall > <rest:go>
//= ^runtime.morestack > <rest:go>
//= ^runtime.rt0_go > <rest:go> | runtime.mstart
//= * > <rest:go> | <vdso:go> | runtime.morestack
//= <rest:go> > <vdso:go> | runtime.morestack
//= ^<ldentry:boot>*1 > <ld:boot> > <libc:boot> | <rest:boot>
//= ^_start > <libc:start>*1..3 > main | <libc:boot> | <rest:boot>
//= main > <rest:go>
//= ^<clone:thread>*1 > <libc:thread>*1 > <rest:thread> | <libc,ld:thread>
//= <rest:thread> > <libc,ld:thread> | runtime.mstart
//= <rest:go> > <libc,ld,vdso:go>
// Go's scheduler interrupts by a signal; with C in the program its handler returns through libc's stub.
//= * > <libc:signal>*1 > <rest:go>
//= c_enter > c_middle > c_burn
// runtime.cgocall, runtime.asmcgocall, and the function that cgo makes.
//= main.main > main.calls > main.inGo | <rest:cgo>*1..5
//= <rest:cgo>*1..5 > c_enter

var sink uint64

//go:noinline
func inGo(rounds int) uint64 {
	var sum uint64
	for i := 0; i < rounds; i++ {
		sum = sum*31 ^ uint64(i)
	}
	return sum
}

//go:noinline
func calls() {
	for {
		sink += uint64(C.c_enter(20000))
		sink += inGo(2000)
	}
}

// As the scheduler does when a routine has run for long: here so often that such stacks are surely seen.
func interrupt() {
	for {
		time.Sleep(200 * time.Microsecond)
		syscall.Kill(syscall.Getpid(), syscall.SIGURG)
	}
}

func main() {
	fmt.Println("ready")
	if n, _ := os.Stdin.Read(make([]byte, 1)); n != 1 {
		os.Exit(1)
	}
	go interrupt()
	calls()
}

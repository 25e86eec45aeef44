// A program of 32 bits that needs no library: built with -m32 -nostdlib -static. Says `ready` and spins until killed or 60 s have passed.
void _start(void)
{
	static const char ready[] = "ready\n";
	int result;

	asm volatile("int $0x80" : "=a"(result) : "a"(4), "b"(1), "c"(ready), "d"(6) : "memory"); // write
	asm volatile("int $0x80" : "=a"(result) : "a"(27), "b"(60) : "memory"); // alarm
	for (;;)
		;
}

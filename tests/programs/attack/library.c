/* A library of one function. Root's is built with -DWORK=honest_work, the attacker's with another name and the same build id. */
__attribute__((noinline)) unsigned long WORK(unsigned long rounds)
{
	unsigned long sum = 0;

	for (unsigned long i = 0; i < rounds; i++)
		__asm__ volatile("" : "+r"(sum) : "r"(i));
	return sum;
}

unsigned long work(unsigned long rounds)
{
	return WORK(rounds) + 1;
}

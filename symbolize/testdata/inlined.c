// Each call of here() prints its return address. The comment "NAME 0" marks the line of that call,
// "NAME 1" the line at which the enclosing inlined function is called, and so on.
#include <stdio.h>

#define INLINE static inline __attribute__((always_inline))

__attribute__((noinline)) void here(const char *name)
{
	printf("%s %p\n", name, __builtin_return_address(0));
	__asm__ volatile("" ::: "memory");
}

INLINE int innermost(int n)
{
	here("chain"); // chain 0
	return n * 3;
}

INLINE int middle(int n)
{
	if (n > 2)
		n += innermost(n + 1); // chain 1
	return n ^ 5;
}

__attribute__((noinline)) int outer(int n)
{
	here("plain"); // plain 0
	n = middle(n); // chain 2
	__asm__ volatile("" ::: "memory");
	return n + 1;
}

__attribute__((noinline, section(".text.elsewhere"))) int elsewhere(int n)
{
	here("elsewhere"); // elsewhere 0
	return n + 2;
}

int main(int argc, char **argv)
{
	(void)argv;
	return outer(argc + 2) + elsewhere(argc) == 0; // nothing
}

/*
 * Functions with different first instructions, to measure the cost of a probe by instruction, and many
 * functions that are never called, to measure the cost of attaching probes. "instructions NAME" reads
 * a number N per input line, calls NAME N times, and answers with a line.
 */
#include <stdio.h>
#include <string.h>

#define FUNCTION(name, code) \
	__asm__(".text\n.balign 64\n.globl at_" #name "\n.type at_" #name ", @function\nat_" #name ":\n" code "\n.size at_" #name ", .-at_" #name "\n"); \
	void at_##name(void);
#define MANY(name) __asm__(".text\n.balign 64\n.globl many_" #name "\n.type many_" #name ", @function\nmany_" #name ": push %rbp\npop %rbp\nret\n.size many_" #name ", .-many_" #name "\n");
#define TEN(n) MANY(n##0) MANY(n##1) MANY(n##2) MANY(n##3) MANY(n##4) MANY(n##5) MANY(n##6) MANY(n##7) MANY(n##8) MANY(n##9)
#define HUNDRED(n) TEN(n##0) TEN(n##1) TEN(n##2) TEN(n##3) TEN(n##4) TEN(n##5) TEN(n##6) TEN(n##7) TEN(n##8) TEN(n##9)

FUNCTION(push, "push %rbp\npop %rbp\nret")
FUNCTION(nop5, ".byte 0x0f, 0x1f, 0x44, 0, 0\nret") /* Linux 6.18 replaces this instruction by a call */
FUNCTION(nop, "nop\nret")
FUNCTION(endbr64, "endbr64\nret")
FUNCTION(sub, "sub $8,%rsp\nadd $8,%rsp\nret")
FUNCTION(mov, "mov %rsp,%rax\nret")
FUNCTION(jump, "jmp 1f\n1: ret")
FUNCTION(call, "call 1f\nret\n1: ret")
HUNDRED(0) HUNDRED(1) HUNDRED(2) HUNDRED(3) HUNDRED(4) HUNDRED(5)

static const struct {
	const char *name;
	void (*function)(void);
} functions[] = {{"push", at_push}, {"nop5", at_nop5}, {"nop", at_nop}, {"endbr64", at_endbr64}, {"sub", at_sub}, {"mov", at_mov}, {"jump", at_jump}, {"call", at_call}};

int main(int argc, char **argv)
{
	char line[32];
	long n;

	for (unsigned f = 0; argc == 2 && f < sizeof(functions) / sizeof(*functions); f++) {
		if (strcmp(argv[1], functions[f].name))
			continue;
		while (fgets(line, sizeof(line), stdin) && sscanf(line, "%ld", &n) == 1) {
			for (long i = 0; i < n; i++)
				functions[f].function();
			puts("done");
			fflush(stdout);
		}
		return 0;
	}
	fprintf(stderr, "usage: instructions push|nop5|nop|endbr64|sub|mov|jump|call\n");
	return 2;
}

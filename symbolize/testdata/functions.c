// Functions of every kind in a symbol table: global, static, aliased, weak, hidden, without a size.
#include <stdio.h>

int data_object = 42;

__attribute__((noinline)) static int local_function(int x) { return x * 7 + data_object; }
__attribute__((noinline)) int global_function(int x) { return local_function(x) + 1; }
__attribute__((noinline, visibility("hidden"))) int hidden_function(int x) { return x ^ 3; }
int alias_of_global(int x) __attribute__((alias("global_function")));
int ga(int x) __attribute__((weak, alias("global_function")));

// No .size, as in hand-written assembly: it reaches to the next function.
__asm__(".text\n.globl sizeless_function\n.type sizeless_function, @function\nsizeless_function:\n nop\n nop\n ret\n");
// A function inside another one.
__asm__(".text\n.globl outer_function\n.type outer_function, @function\nouter_function:\n nop\n nop\n"
        ".type inner_function, @function\ninner_function:\n nop\n nop\n.size inner_function, .-inner_function\n"
        " nop\n ret\n.size outer_function, .-outer_function\n");

#ifndef NO_MAIN
int main(int argc, char **argv) { return printf("%d %d\n", global_function(argc), hidden_function(argc)); }
#endif

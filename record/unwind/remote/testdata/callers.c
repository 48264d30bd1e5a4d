/* Functions without frame pointers, for stacks that tests write themselves. */
volatile int sink;

__attribute__((noinline)) void leaf(void) { sink++; }

__attribute__((noinline)) void leaf_caller(void)
{
	leaf();
	sink++;
}

int main(void)
{
	leaf_caller();
	return 0;
}

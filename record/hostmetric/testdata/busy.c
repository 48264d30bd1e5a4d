// Computes for ever.
int main(void)
{
	for (volatile long n = 0;; n++) {
	}
}

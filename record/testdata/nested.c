/*
 * A simulated driver whose functions call each other, and are left by longjmp; simcuda's functions never
 * do that. It is built twice: with -DDRIVER as libcuda.so.1, and without as the program that uses this
 * library. Each function returns a fixed result.
 */
#include <setjmp.h>
#include <stddef.h>

typedef unsigned long long CUdeviceptr;

int cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes);
int cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, void *stream);
int cuStreamSynchronize(void *stream);
int cuCtxSynchronize(void);
int cuMemFree_v2(CUdeviceptr ptr);

#ifdef DRIVER

jmp_buf *way_out;

__attribute__((noinline)) int cuStreamSynchronize(void *stream)
{
	__asm__ volatile("" ::: "memory");
	if (way_out)
		longjmp(*way_out, 1);
	return stream ? 0 : 1;
}

/* Synchronizes inside, as a stream-ordered allocation may. */
__attribute__((noinline)) int cuMemAllocAsync(CUdeviceptr *ptr, size_t bytes, void *stream)
{
	*ptr = 0x7f0000000000 + bytes;
	return cuStreamSynchronize(stream) - 0;
}

__attribute__((noinline)) int cuMemAlloc_v2(CUdeviceptr *ptr, size_t bytes)
{
	int result = cuMemAllocAsync(ptr, bytes, (void *)16);
	__asm__ volatile("" ::: "memory"); /* prevents a tail call */
	return result;
}

__attribute__((noinline)) int cuCtxSynchronize(void) { return 0; }

/* Makes a tail call to another driver function. */
__attribute__((naked)) int cuMemFree_v2(CUdeviceptr ptr)
{
	__asm__ volatile("push %rbp\n\tpop %rbp\n\tjmp cuCtxSynchronize@PLT");
}

#else

#include <unistd.h>

extern jmp_buf *way_out;

int main(void)
{
	CUdeviceptr p = 0;
	jmp_buf here;
	char byte;
	if (write(1, "ready\n", 6) != 6 || read(0, &byte, 1) < 0)
		return 1;
	for (int i = 1; i <= 3; i++) {
		cuMemAlloc_v2(&p, (size_t)i * 100); /* three nested calls, which return in order */
		cuMemFree_v2(p);                    /* a tail call */
	}
	way_out = &here;
	if (!setjmp(here))
		cuMemAlloc_v2(&p, 4000); /* longjmp leaves three nested calls */
	way_out = NULL;
	cuCtxSynchronize(); /* same stack depth: shows that the three calls are gone */
	cuStreamSynchronize((void *)16);
	return write(1, "done\n", 5) != 5;
}

#endif

/*
 * Calls the driver from 64 call sites: every second call from the first call site, the others from a random
 * one. The byte count of a call is the index of its call site + 1.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef unsigned long long device_pointer;
extern int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(device_pointer *, size_t), cuMemsetD8Async(device_pointer, unsigned char, size_t, void *);

static device_pointer memory;
static volatile int sink;

/* The write after the call prevents a tail call. */
#define CALL_SITE(n)                                          \
	__attribute__((noinline)) static void site##n(void)  \
	{                                                     \
		cuMemsetD8Async(memory, 0, 0##n + 1, 0);          \
		sink += 0##n;                                     \
	}
#define EIGHT(of, n) of(n##0) of(n##1) of(n##2) of(n##3) of(n##4) of(n##5) of(n##6) of(n##7)
#define ALL(of) EIGHT(of, 0) EIGHT(of, 1) EIGHT(of, 2) EIGHT(of, 3) EIGHT(of, 4) EIGHT(of, 5) EIGHT(of, 6) EIGHT(of, 7)
#define NAME(n) site##n,
ALL(CALL_SITE)
static void (*const sites[64])(void) = {ALL(NAME)};

int main(int argc, char **argv)
{
	unsigned random = 1, calls = argc > 1 ? atoi(argv[1]) : 1000;
	void *context;
	int device;
	char go;

	cuInit(0);
	cuDeviceGet(&device, 0);
	cuDevicePrimaryCtxRetain(&context, device);
	cuCtxSetCurrent(context);
	cuMemAlloc_v2(&memory, 4096);
	puts("ready");
	fflush(stdout);
	if (read(0, &go, 1) != 1)
		return 1;
	while (calls--) {
		random = random * 1103515245 + 12345;
		sites[calls % 2 ? random >> 16 & 63 : 0]();
	}
	puts("done");
	fflush(stdout);
	return read(0, &go, 1) > 0;
}

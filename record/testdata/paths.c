/*
 * Calls the driver along eight call paths with the same function, return address and stack pointer. The
 * paths differ only in return addresses of outer frames. The byte count of a call identifies
 * its path: 100 x outer + inner.
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

/* The volatile arrays make the frames large. The write after the call prevents a tail call. */
__attribute__((noinline)) static void leaf(int way)
{
	volatile char room[256];

	room[0] = way;
	cuMemsetD8Async(memory, 0, way, 0);
	sink += room[0];
}

#define INNER(n)                                              \
	__attribute__((noinline)) static void inner##n(int outer) \
	{                                                         \
		volatile char room[2048];                             \
                                                              \
		room[0] = n;                                          \
		leaf(100 * outer + n);                                \
		sink += room[0];                                      \
	}
INNER(0)
INNER(1)
INNER(2)
INNER(3)

static void (*const inner[4])(int) = {inner0, inner1, inner2, inner3};

__attribute__((noinline)) static void outer1(unsigned way)
{
	inner[way % 4](1);
	sink++;
}

__attribute__((noinline)) static void outer2(unsigned way)
{
	inner[way % 4](2);
	sink += 2;
}

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
		(random >> 16 & 1 ? outer1 : outer2)(random >> 18);
	}
	puts("done");
	fflush(stdout);
	return read(0, &go, 1) > 0;
}

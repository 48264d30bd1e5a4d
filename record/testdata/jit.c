/*
 * Allocates memory from code that it generates at run time. It names the code in /tmp/perf-PID.map as
 * JIT compilers do. PID is the pid in the program's own pid namespace.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef unsigned long long device_pointer;
extern int cuInit(unsigned), cuDeviceGet(int *, int), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
extern int cuMemAlloc_v2(device_pointer *, size_t);

/* Machine code of a function that calls its argument and keeps a frame pointer. */
#if defined(__x86_64__)
static const uint8_t code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3}; /* push rbp; mov rbp, rsp; call rdi; pop rbp; ret */
#else
static const uint32_t code[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0}; /* stp; mov x29, sp; blr x0; ldp; ret */
#endif

static volatile int sink;

__attribute__((noinline)) static void allocate(void)
{
	device_pointer memory;

	sink += cuMemAlloc_v2(&memory, 4096);
}

int main(void)
{
	void (*made)(void (*)(void)) = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64];
	void *context;
	int device;
	char go;
	FILE *map;

	memcpy((void *)made, code, sizeof(code));
	__builtin___clear_cache((char *)made, (char *)made + sizeof(code));
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "w");
	if (!map)
		return 1;
	fprintf(map, "%lx %zx made_at_run_time\n", (unsigned long)made, sizeof(code));
	fclose(map);
	cuInit(0);
	cuDeviceGet(&device, 0);
	cuDevicePrimaryCtxRetain(&context, device);
	cuCtxSetCurrent(context);
	puts("ready");
	fflush(stdout);
	if (read(0, &go, 1) != 1)
		return 1;
	made(allocate);
	sink++;
	puts("done");
	fflush(stdout);
	go = read(0, &go, 1) > 0;
	unlink(path);
	return go;
}

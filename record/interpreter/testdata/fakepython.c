// Has the symbols and structures of CPython 3.12 for a recorder, and no interpreter.
//   good     the GIL is locked by this thread, and the 7th collection of the oldest generation runs
//   hang     after a line of input, whoever reads the GIL waits for ever
//   garbage  all structures have random content
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

unsigned int Py_Version = 0x030c01f0;
uint64_t _PyRuntime[512], PyCode_Type[64];
static uint64_t interpreter[1024], thread[64];

void _PyEval_EvalFrameDefault(void) { puts("not an interpreter"); }

static void put(uint64_t *structure, size_t offset, uint64_t value) { structure[offset / 8] = value; }

static void fill(uint64_t *structure, size_t words)
{
	for (size_t i = 0; i < words; i++) {
		structure[i] = rand() % 3 ? (uint64_t)rand() << 32 | (uint64_t)rand() : (uint64_t)(uintptr_t)structure;
	}
}

static void hang(void *page)
{
	int fd = (int)syscall(SYS_userfaultfd, 0);
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {
		.range = {.start = (uintptr_t)page, .len = PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || madvise(page, PAGE, MADV_DONTNEED) ||
	    ioctl(fd, UFFDIO_REGISTER, &range)) {
		perror("userfaultfd");
		exit(1);
	}
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "good";
	uint64_t *gil = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	put(_PyRuntime, 40, (uintptr_t)interpreter);
	put(_PyRuntime, 48, (uintptr_t)interpreter);
	put(interpreter, 72, (uintptr_t)thread);
	put(interpreter, 384, (uintptr_t)gil);
	put(interpreter, 112 + 96, (uintptr_t)interpreter + 112 + 24);
	put(interpreter, 112 + 128 + 48, 6);
	put(interpreter, 112 + 200, 1);
	put(thread, 16, (uintptr_t)interpreter);
	put(thread, 136, 0x1234);
	put(thread, 144, (uint64_t)getpid());
	put(gil, 0, 5000);
	put(gil, 8, (uintptr_t)thread);
	put(gil, 16, 1);
	puts("ready");
	fflush(stdout);
	getchar();
	if (!strcmp(mode, "hang")) {
		hang(gil);
		puts("hangs");
		fflush(stdout);
	}
	while (!strcmp(mode, "garbage")) {
		fill(gil, PAGE / 8);
		fill(thread, 64);
		fill(interpreter, 1024);
		fill(_PyRuntime, 512);
		put(_PyRuntime, 48, (uintptr_t)interpreter);
		put(interpreter, 384, (uintptr_t)gil);
		put(gil, 0, 5000);
		put(gil, 16, 1);
		usleep(100);
	}
	pause();
}

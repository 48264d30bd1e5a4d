/*
 * every: calls every function of the simulated driver, with arguments that differ in each call.
 * Each kind of call that can fail is also made so that it fails. Tests compare a recording of this
 * program with the ledger line by line.
 *
 * The program exits 1 if the library exports a function that it never calls, or that never
 * succeeds. Where the simulator and a real driver return different results, it expects the
 * simulator's result.
 */
#include "every.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_MAX = 512 };

static void *library;
static struct {
	const char *name;
	void *address;
	int calls, successes;
} table[NAMES_MAX];
static int table_len;
static int wrong;

static int entry_of(const char *name)
{
	for (int i = 0; i < table_len; i++)
		if (!strcmp(table[i].name, name))
			return i;
	void *address = dlsym(library, name);
	if (!address || table_len == NAMES_MAX) {
		fprintf(stderr, "every: no %s in libcuda.so.1\n", name);
		exit(1);
	}
	table[table_len].name = name;
	table[table_len].address = address;
	return table_len++;
}

void *every_find(const char *name)
{
	return table[entry_of(name)].address;
}

void every_note(const char *name, CUresult got, CUresult want, const char *file, int line)
{
	int i = entry_of(name);
	table[i].calls++;
	table[i].successes += got == CUDA_SUCCESS;
	if (got == want)
		return;
	fprintf(stderr, "every: %s:%d: %s: want %d, got %d\n", file, line, name, (int)want, (int)got);
	wrong++;
}

void every_check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "every: check failed: %s\n", what);
	wrong++;
}

unsigned int unique_number(void)
{
	static unsigned int last = 1;
	return ++last;
}

size_t unique_bytes(void)
{
	return 1000 + 4 * (size_t)unique_number();
}

size_t unique_big_bytes(void)
{
	static size_t last;
	return ++last << 21;
}

/* ---- check that every exported function was called ---- */

static int calls_in_ledger(void)
{
	int sum = 0;
	for (int i = 0; i < table_len; i++)
		if (strcmp(table[i].name, "cuGetErrorName") && strcmp(table[i].name, "cuGetErrorString"))
			sum += table[i].calls;
	return sum;
}

static bool was_called(const char *name)
{
	for (int i = 0; i < table_len; i++)
		if (!strcmp(table[i].name, name))
			return true;
	return false;
}

static const Elf64_Ehdr *map_library(void)
{
	struct link_map *map = NULL;
	struct stat st;
	if (dlinfo(library, RTLD_DI_LINKMAP, &map))
		return NULL;
	int fd = open(map->l_name, O_RDONLY | O_CLOEXEC);
	void *at = fd < 0 || fstat(fd, &st) ? MAP_FAILED : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (fd >= 0)
		close(fd);
	return at == MAP_FAILED ? NULL : at;
}

/* Prints each exported function that was never called, or that never succeeded, and fails the
 * run. */
static void compare_with_library(void)
{
	const Elf64_Ehdr *elf = map_library();
	const Elf64_Shdr *sections = elf ? (const Elf64_Shdr *)((const char *)elf + elf->e_shoff) : NULL;
	int exported = 0;
	for (int s = 0; elf && s < elf->e_shnum; s++) {
		if (sections[s].sh_type != SHT_DYNSYM)
			continue;
		const Elf64_Sym *symbols = (const Elf64_Sym *)((const char *)elf + sections[s].sh_offset);
		const char *names = (const char *)elf + sections[sections[s].sh_link].sh_offset;
		for (size_t i = 0; i < sections[s].sh_size / sizeof(*symbols); i++) {
			const char *name = names + symbols[i].st_name;
			bool function = ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC;
			if (symbols[i].st_shndx == SHN_UNDEF || !function || strncmp(name, "cu", 2))
				continue;
			exported++;
			if (was_called(name))
				continue;
			fprintf(stderr, "every: %s was not called\n", name);
			wrong++;
		}
	}
	if (!exported) {
		fprintf(stderr, "every: cannot read the symbols of libcuda.so.1\n");
		wrong++;
	}
	for (int i = 0; i < table_len; i++) {
		if (table[i].successes || (every.device == every.other_device && strstr(table[i].name, "PeerAccess")))
			continue;
		fprintf(stderr, "every: %s never succeeded\n", table[i].name);
		wrong++;
	}
}

/* ---- main program ---- */

/* Runs all parts in a thread of its own. Its ledger lines are in the file when the thread has
 * ended. */
static void *run(void *unused)
{
	every_set_up();
	every_memory();
	every_pool();
	every_virtual_memory();
	every_foreign_memory();
	every_copy();
	every_set();
	every_hints();
	every_stream();
	every_launch();
	every_graph();
	every_nodes();
	every_capture();
	every_module();
	every_shared();
	every_tear_down();
	return unused;
}

static void wait_for_stdin(void)
{
	char byte;
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) < 0)
		;
}

int main(int argc, char **argv)
{
	bool wait = argc == 2 && !strcmp(argv[1], "--wait"), child = argc == 2 && !strcmp(argv[1], "--ipc-child");
	pthread_t thread;
	if (argc != 1 && !wait && !child) {
		fprintf(stderr, "usage: every [--wait]\n");
		return 2;
	}
	/* Copies and access between devices need two devices. */
	setenv("SIMCUDA_DEVICES", "2", 0);
	if (!child)
		every_start_child();
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "every: %s\n", dlerror());
		return 1;
	}
	if (child)
		return every_run_child() || wrong;
	if (wait) {
		printf("ready %d\n", (int)getpid());
		wait_for_stdin();
	}
	if (pthread_create(&thread, NULL, run, NULL) || pthread_join(thread, NULL)) {
		fprintf(stderr, "every: cannot start a thread\n");
		return 1;
	}
	every_end_child();
	compare_with_library();
	printf("done %d\n", calls_in_ledger());
	fflush(stdout);
	if (wait)
		wait_for_stdin();
	return wrong > 0;
}

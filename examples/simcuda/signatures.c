/*
 * signatures --seed N --launches L [--wait]: launches kernels with random parameters and values. The parameters
 * of a third of the kernels are in PTX. The others are in images that a recorder cannot read; for half of them
 * the program asks the driver. SIMCUDA_ARGUMENTS has the values.
 */
#include "cuda_sim.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CUDA_FUNCTIONS(X)                                                                                       \
	X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuModuleLoadData) X(cuModuleGetFunction)     \
	X(cuLinkCreate_v2) X(cuLinkAddData_v2) X(cuLinkComplete) X(cuFuncGetParamInfo) X(cuStreamCreate)        \
	X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuLaunchCooperativeKernel) X(cuCtxSynchronize)

static struct {
#define X(name) __typeof__(name) *name;
	CUDA_FUNCTIONS(X)
#undef X
} cuda;

enum { KERNELS = 18, PARAMETERS = 40, STREAMS = 3, TEXT = 1 << 16, HEAP = 1 << 16, BUFFER = 4096 };

static struct kernel {
	CUfunction function;
	char name[16];
	int count;
	struct { unsigned size, align; char declaration[48]; } at[PARAMETERS];
} kernels[KERNELS];
static char text[TEXT];
static uint64_t random_state;
static CUstream streams[STREAMS];

static unsigned below(unsigned n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)(random_state % n);
}

static void check(CUresult result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "signatures: %s: error %d\n", what, (int)result);
	exit(1);
}
#define CUDA(call, ...) check(cuda.call(__VA_ARGS__), #call)

static void draw_parameter(struct kernel *k, int i)
{
	static const struct { const char *type; unsigned size; } types[] = {
		{".u8", 1}, {".s16", 2}, {".u32", 4}, {".s32", 4}, {".f32", 4}, {".u64", 8}, {".f64", 8}, {".b64", 8},
		{".u64 .ptr .global .align 16", 8}, {".u64", 8}, {".u64", 8},
	};
	unsigned t = below(sizeof(types) / sizeof(*types) + 2);
	if (t < sizeof(types) / sizeof(*types)) {
		k->at[i].size = k->at[i].align = types[t].size;
		snprintf(k->at[i].declaration, sizeof(k->at[i].declaration), ".param %s p%d", types[t].type, i);
		return;
	}
	k->at[i].align = 1u << below(5);
	k->at[i].size = k->at[i].align * (1 + below(96 / k->at[i].align));
	snprintf(k->at[i].declaration, sizeof(k->at[i].declaration), ".param .align %u .b8 p%d[%u]", k->at[i].align, i, k->at[i].size);
}

/* Writes PTX with the kernels [from, to). */
static void write_ptx(int from, int to)
{
	size_t n = (size_t)sprintf(text, ".version 7.0\n.target sm_52\n.address_size 64\n");
	for (int i = from; i < to; i++) {
		n += (size_t)sprintf(text + n, ".visible .entry %s(", kernels[i].name);
		for (int p = 0; p < kernels[i].count; p++)
			n += (size_t)sprintf(text + n, "%s\n\t%s", p ? "," : "", kernels[i].at[p].declaration);
		n += (size_t)sprintf(text + n, "\n) { ret; }\n");
	}
}

static void load(int from, int to, int is_linked)
{
	CUmodule module = NULL;
	CUlinkState state = NULL;
	void *image = NULL;
	size_t size = 0;
	write_ptx(from, to);
	if (is_linked) {
		CUDA(cuLinkCreate_v2, 0, NULL, NULL, &state);
		CUDA(cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, text, strlen(text) + 1, "signatures", 0, NULL, NULL);
		CUDA(cuLinkComplete, state, &image, &size);
	} else {
		image = strdup(text); /* it stays: a recorder reads it later */
	}
	CUDA(cuModuleLoadData, &module, image);
	for (int i = from; i < to; i++)
		CUDA(cuModuleGetFunction, &kernels[i].function, module, kernels[i].name);
}

static void find_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define X(name) \
	if (library) \
		cuda.name = (__typeof__(name) *)dlsym(library, #name);
	CUDA_FUNCTIONS(X)
#undef X
	const char *error = dlerror();
	if (error) {
		fprintf(stderr, "signatures: %s\n", error);
		exit(1);
	}
}

static void set_up(void)
{
	CUcontext context = NULL;
	CUDA(cuInit, 0);
	CUDA(cuDevicePrimaryCtxRetain, &context, 0);
	CUDA(cuCtxSetCurrent, context);
	for (int i = 0; i < STREAMS; i++)
		CUDA(cuStreamCreate, &streams[i], CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < KERNELS; i++) {
		snprintf(kernels[i].name, sizeof(kernels[i].name), "kernel_%d", i);
		kernels[i].count = i % 6 == 5 ? 20 + (int)below(PARAMETERS - 19) : (int)below(12);
		for (int p = 0; p < kernels[i].count; p++)
			draw_parameter(&kernels[i], p);
	}
	load(0, KERNELS / 3, 0);
	load(KERNELS / 3, KERNELS * 2 / 3, 1);
	load(KERNELS * 2 / 3, KERNELS, 1);
	for (int i = KERNELS / 3; i < KERNELS * 2 / 3; i++) {
		size_t offset = 0, size = 0;
		for (size_t p = 0; !cuda.cuFuncGetParamInfo(kernels[i].function, p, &offset, &size);)
			p++;
	}
}

/* Places the values on the heap: one behind the other, in reverse order, or anywhere. */
static void place(const struct kernel *k, char *heap, void **values)
{
	unsigned how = below(3), at = 64;
	for (int i = 0; i < k->count; i++) {
		int p = how == 1 ? k->count - 1 - i : i;
		if (how == 2)
			at = below(HEAP - 256);
		at = (at + 15) & ~15u;
		values[p] = heap + at;
		at += k->at[p].size;
	}
	for (int p = 0; p < k->count; p++)
		for (unsigned b = 0; b < k->at[p].size; b++)
			((char *)values[p])[b] = (char)below(256);
}

/* Fills a buffer with all values, and returns its size. */
static size_t fill(const struct kernel *k, char *buffer)
{
	size_t end = 0;
	for (int p = 0; p < k->count; p++)
		end = (end + k->at[p].align - 1) / k->at[p].align * k->at[p].align + k->at[p].size;
	for (size_t b = 0; b < end; b++)
		buffer[b] = (char)below(256);
	return end;
}

static void launch(const struct kernel *k, char *heap)
{
	static char buffer[BUFFER];
	void *values[PARAMETERS + 1] = {NULL};
	CUstream stream = streams[below(STREAMS)];
	CUlaunchConfig c = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1, .blockDimZ = 1, .hStream = stream};
	size_t size = 0;
	void *extra[5] = {(void *)1, buffer, (void *)2, &size, NULL};
	place(k, heap, values);
	switch (below(5)) {
	case 0: CUDA(cuLaunchKernelEx, &c, k->function, values, NULL); break;
	case 1: CUDA(cuLaunchCooperativeKernel, k->function, 1, 1, 1, 32, 1, 1, 0, stream, values); break;
	case 2:
		size = fill(k, buffer);
		CUDA(cuLaunchKernel, k->function, 1, 1, 1, 32, 1, 1, 0, stream, NULL, extra);
		break;
	default: CUDA(cuLaunchKernel, k->function, 1, 1, 1, 32, 1, 1, 0, stream, values, NULL); break;
	}
}

static void pause_for_stdin(const char *line)
{
	char byte;
	printf("%s\n", line);
	fflush(stdout);
	if (read(STDIN_FILENO, &byte, 1) < 0)
		exit(1);
}

int main(int argc, char **argv)
{
	int seed = 1, launches = 500, wait = 0;
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--seed") && i + 1 < argc)
			seed = atoi(argv[++i]);
		else if (!strcmp(argv[i], "--launches") && i + 1 < argc)
			launches = atoi(argv[++i]);
		else
			wait = 1;
	}
	random_state = (uint64_t)seed * 0x9e3779b97f4a7c15ull + 1;
	for (int i = 0; i < 8; i++)
		below(2);
	find_cuda();
	if (wait)
		pause_for_stdin("ready");
	set_up();
	char *heap = aligned_alloc(4096, HEAP);
	if (!heap)
		return 1;
	memset(heap, 0, HEAP);
	for (int i = 0; i < launches; i++)
		launch(&kernels[below(KERNELS)], heap);
	CUDA(cuCtxSynchronize);
	printf("done %d\n", launches);
	fflush(stdout);
	if (wait)
		pause_for_stdin("finished");
	return 0;
}

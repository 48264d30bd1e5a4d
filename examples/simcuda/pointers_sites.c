/* The functions of pointers that allocate, free and launch. */
#include "pointers.h"

#define SITE __attribute__((noinline, used))

#define INLINE static inline __attribute__((always_inline)) /* no frame of its own */

INLINE CUresult allocate(struct block *b)
{
	switch (b->memory) {
	case ORDERED: return cuda.cuMemAllocAsync(&b->address, b->bytes, streams[0]);
	case MANAGED: return cuda.cuMemAllocManaged(&b->address, b->bytes, 1);
	default: return cuda.cuMemAlloc_v2(&b->address, b->bytes);
	}
}

INLINE CUresult give_back(const struct block *b)
{
	return b->memory == ORDERED ? cuda.cuMemFreeAsync(b->address, streams[0]) : cuda.cuMemFree_v2(b->address);
}

/* The barrier keeps the compiler from replacing the call by a jump. */
#define ALLOCATE(name) \
	SITE CUresult name(struct block *b) { CUresult r = allocate(b); __asm__ volatile("" ::: "memory"); return r; }
#define FREE(name) \
	SITE CUresult name(const struct block *b) { CUresult r = give_back(b); __asm__ volatile("" ::: "memory"); return r; }

ALLOCATE(load_weights) ALLOCATE(grow_cache) ALLOCATE(read_batch) ALLOCATE(make_workspace) ALLOCATE(copy_state) ALLOCATE(open_buffer)
FREE(drop_weights) FREE(shrink_cache) FREE(drop_batch) FREE(drop_workspace) FREE(drop_state) FREE(close_buffer)

const struct allocate_site allocate_sites[SITES] = {
	{"load_weights", load_weights}, {"grow_cache", grow_cache}, {"read_batch", read_batch},
	{"make_workspace", make_workspace}, {"copy_state", copy_state}, {"open_buffer", open_buffer},
};
const struct free_site free_sites[SITES] = {
	{"drop_weights", drop_weights}, {"shrink_cache", shrink_cache}, {"drop_batch", drop_batch},
	{"drop_workspace", drop_workspace}, {"drop_state", drop_state}, {"close_buffer", close_buffer},
};

const char pointers_ptx[] =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	".visible .entry forward(.param .u64 .ptr .global .align 4 in, .param .u64 .ptr .global .align 4 out, .param .u32 n) { ret; }\n"
	".visible .entry scale(.param .f32 factor, .param .u64 .ptr .global .align 4 data, .param .u64 bytes) { ret; }\n"
	".visible .entry gather(.param .u32 n, .param .align 8 .b8 shape[24], .param .u64 .ptr .global .align 8 from,\n"
	"	.param .u64 .ptr .global .align 8 to) { ret; }\n"
	".visible .entry reduce(.param .u64 .ptr .global .align 4 in, .param .f64 start) { ret; }\n";

static CUfunction forward, scale, gather, reduce;

void load_kernels(void)
{
	CUmodule module = NULL;
	if (cuda.cuModuleLoadData(&module, pointers_ptx))
		return;
	cuda.cuModuleGetFunction(&forward, module, "forward");
	cuda.cuModuleGetFunction(&scale, module, "scale");
	cuda.cuModuleGetFunction(&gather, module, "gather");
	cuda.cuModuleGetFunction(&reduce, module, "reduce");
}

#define LAUNCH(f, stream, ...)                                                                               \
	({                                                                                                   \
		void *arguments[] = {__VA_ARGS__};                                                           \
		CUresult r = cuda.cuLaunchKernel(f, 8, 1, 1, 128, 1, 1, 0, streams[stream], arguments, NULL); \
		__asm__ volatile("" ::: "memory");                                                           \
		r;                                                                                           \
	})

SITE CUresult run_forward(CUdeviceptr a, CUdeviceptr b, int stream)
{
	unsigned int n = 1000;
	return LAUNCH(forward, stream, &a, &b, &n);
}

SITE CUresult run_scale(CUdeviceptr a, CUdeviceptr b, int stream)
{
	float factor = 0.5f;
	uint64_t bytes = b & 0xffff;
	return LAUNCH(scale, stream, &factor, &a, &bytes);
}

SITE CUresult run_gather(CUdeviceptr a, CUdeviceptr b, int stream)
{
	unsigned int n = 3;
	struct { uint64_t rows, columns; int rank; } shape = {30, 40, 2};
	return LAUNCH(gather, stream, &n, &shape, &b, &a);
}

SITE CUresult run_reduce(CUdeviceptr a, CUdeviceptr b, int stream)
{
	double start = (double)(b & 0xff);
	return LAUNCH(reduce, stream, &a, &start);
}

const struct launch_site launch_sites[LAUNCH_SITES] = {
	{"run_forward", "forward", run_forward}, {"run_scale", "scale", run_scale}, {"run_gather", "gather", run_gather},
	{"run_reduce", "reduce", run_reduce},
};

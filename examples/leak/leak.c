/*
 * A training loop that leaks GPU memory in one of its functions.
 *
 * load_weights keeps its memory on purpose. make_batch and evaluate free theirs. checkpoint briefly
 * uses pinned host memory. cache_activations leaks a block in every step. The program uses only the
 * CUDA driver API, which it loads with dlopen and cuGetProcAddress. The same binary therefore runs
 * on a GPU and on the simulated driver in ../simcuda.
 */
#include "cuda_sim.h" /* names and types as in NVIDIA's cuda.h */

#include <dlfcn.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Stacks show these functions, so they are not inlined. -rdynamic keeps their names. */
#define STACK_FRAME __attribute__((noinline))

enum {
	CUDA_12 = 12000, /* the driver API version of the function types below; newer drivers support it */
	WEIGHTS = 12, WEIGHT_BYTES = 8 << 20,
	LAUNCHES_PER_STEP = 8,
	EVALUATE_EVERY = 50, EVALUATE_KEEPS = 10, EVALUATE_BYTES = 24 << 20,
	CHECKPOINT_EVERY = 100,
};

/* X(NAME, TYPE): the name to pass to cuGetProcAddress, and a function with the same type. */
#define CUDA_FUNCTIONS(X)                                                                                                       \
	X(cuInit, cuInit) X(cuGetErrorName, cuGetErrorName) X(cuDeviceGet, cuDeviceGet)                                         \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent, cuCtxSetCurrent)                               \
	X(cuModuleLoadData, cuModuleLoadData) X(cuModuleGetFunction, cuModuleGetFunction) X(cuStreamCreate, cuStreamCreate)     \
	X(cuStreamSynchronize, cuStreamSynchronize) X(cuMemAlloc, cuMemAlloc_v2) X(cuMemFree, cuMemFree_v2)                     \
	X(cuMemHostAlloc, cuMemHostAlloc) X(cuMemFreeHost, cuMemFreeHost) X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)            \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2) X(cuMemsetD8Async, cuMemsetD8Async) X(cuLaunchKernel, cuLaunchKernel)

static struct {
#define X(name, type) __typeof__(type) *name;
	CUDA_FUNCTIONS(X)
#undef X
} cuda;

static const char ptx[] =
	".version 7.0\n"
	".target sm_52\n"
	".address_size 64\n"
	".visible .entry scale_kernel(.param .u64 data, .param .f32 factor, .param .u32 n)\n"
	"{\n"
	"	.reg .pred %p<2>;\n"
	"	.reg .f32 %f<4>;\n"
	"	.reg .b32 %r<6>;\n"
	"	.reg .b64 %rd<5>;\n"
	"	ld.param.u64 %rd1, [data];\n"
	"	ld.param.f32 %f1, [factor];\n"
	"	ld.param.u32 %r1, [n];\n"
	"	mov.u32 %r2, %ctaid.x;\n"
	"	mov.u32 %r3, %ntid.x;\n"
	"	mov.u32 %r4, %tid.x;\n"
	"	mad.lo.s32 %r5, %r2, %r3, %r4;\n"
	"	setp.ge.u32 %p1, %r5, %r1;\n"
	"	@%p1 bra DONE;\n"
	"	cvta.to.global.u64 %rd2, %rd1;\n"
	"	mul.wide.u32 %rd3, %r5, 4;\n"
	"	add.s64 %rd4, %rd2, %rd3;\n"
	"	ld.global.f32 %f2, [%rd4];\n"
	"	mul.f32 %f3, %f2, %f1;\n"
	"	st.global.f32 [%rd4], %f3;\n"
	"DONE:\n"
	"	ret;\n"
	"}\n";

struct batch {
	CUdeviceptr input, labels;
	size_t input_bytes, labels_bytes;
};

static CUstream stream;
static CUfunction scale_kernel;
static CUdeviceptr weights[WEIGHTS];
static CUdeviceptr evaluation;
static char host_batch[1 << 20];
static unsigned long long leaked_blocks, leaked_bytes;
static volatile sig_atomic_t stop;

static void check(CUresult result, const char *call)
{
	const char *name = NULL;
	if (result == CUDA_SUCCESS)
		return;
	if (cuda.cuGetErrorName)
		cuda.cuGetErrorName(result, &name);
	fprintf(stderr, "leak: %s: %s (%d)\n", call, name ? name : "unknown error", (int)result);
	exit(1);
}
#define CUDA(call, ...) check(cuda.call(__VA_ARGS__), #call)

static void find_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(cuGetProcAddress_v2) *get = library ? (__typeof__(get))dlsym(library, "cuGetProcAddress_v2") : NULL;
	if (!get) {
		fprintf(stderr, "leak: %s\n", dlerror());
		exit(1);
	}
#define X(name, type)                                                                                                      \
	check(get(#name, (void **)&cuda.name, CUDA_12, CU_GET_PROC_ADDRESS_DEFAULT, NULL), "cuGetProcAddress " #name); \
	check(cuda.name ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND, "cuGetProcAddress " #name);
	CUDA_FUNCTIONS(X)
#undef X
}

STACK_FRAME void load_weights(void)
{
	for (int i = 0; i < WEIGHTS; i++) {
		CUDA(cuMemAlloc, &weights[i], WEIGHT_BYTES);
		CUDA(cuMemsetD8Async, weights[i], 0, WEIGHT_BYTES, stream);
	}
	CUDA(cuStreamSynchronize, stream);
}

/* Batch sizes vary from step to step, like sentences of different length. */
STACK_FRAME void make_batch(struct batch *batch, long step)
{
	batch->input_bytes = (size_t)(64 + step * 37 % 192) << 10;
	batch->labels_bytes = batch->input_bytes / 16;
	CUDA(cuMemAlloc, &batch->input, batch->input_bytes);
	CUDA(cuMemAlloc, &batch->labels, batch->labels_bytes);
	CUDA(cuMemcpyHtoDAsync, batch->input, host_batch, batch->input_bytes, stream);
	CUDA(cuMemcpyHtoDAsync, batch->labels, host_batch, batch->labels_bytes, stream);
}

STACK_FRAME void free_batch(struct batch *batch)
{
	CUDA(cuMemFree, batch->labels);
	CUDA(cuMemFree, batch->input);
}

STACK_FRAME void forward(struct batch *batch)
{
	float factor = 0.5f;
	unsigned int n = (unsigned int)(batch->input_bytes / sizeof(float));
	void *arguments[] = {&batch->input, &factor, &n};
	for (int layer = 0; layer < LAUNCHES_PER_STEP; layer++)
		CUDA(cuLaunchKernel, scale_kernel, (n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
}

/* The leak: a "cache" whose entries are never used or freed. */
STACK_FRAME void cache_activations(size_t bytes)
{
	CUdeviceptr activations;
	if (bytes == 0)
		return;
	CUDA(cuMemAlloc, &activations, bytes);
	CUDA(cuMemsetD8Async, activations, 0, bytes, stream);
	leaked_blocks++;
	leaked_bytes += bytes;
}

/* Long-lived memory, but not a leak: it is freed EVALUATE_KEEPS steps later. */
STACK_FRAME void evaluate(long step)
{
	if (step % EVALUATE_EVERY == 0) {
		CUDA(cuMemAlloc, &evaluation, EVALUATE_BYTES);
	} else if (step % EVALUATE_EVERY == EVALUATE_KEEPS && evaluation) {
		CUDA(cuMemFree, evaluation);
		evaluation = 0;
	}
}

STACK_FRAME void checkpoint(void)
{
	void *copy;
	CUDA(cuMemHostAlloc, &copy, WEIGHT_BYTES, 0);
	for (int i = 0; i < WEIGHTS; i++)
		CUDA(cuMemcpyDtoH, copy, weights[i], WEIGHT_BYTES);
	CUDA(cuMemFreeHost, copy);
}

STACK_FRAME void train_step(long step, size_t leak_bytes)
{
	struct batch batch;
	make_batch(&batch, step);
	forward(&batch);
	cache_activations(leak_bytes);
	CUDA(cuStreamSynchronize, stream);
	free_batch(&batch);
	evaluate(step);
	if (step % CHECKPOINT_EVERY == CHECKPOINT_EVERY - 1)
		checkpoint();
}

static void set_up(void)
{
	CUdevice device;
	CUcontext context;
	CUmodule module;
	find_cuda();
	CUDA(cuInit, 0);
	CUDA(cuDeviceGet, &device, 0);
	CUDA(cuDevicePrimaryCtxRetain, &context, device);
	CUDA(cuCtxSetCurrent, context);
	CUDA(cuModuleLoadData, &module, ptx);
	CUDA(cuModuleGetFunction, &scale_kernel, module, "scale_kernel");
	CUDA(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
	load_weights();
}

static void touch(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0) {
		fprintf(stderr, "leak: %s: %m\n", path);
		exit(1);
	}
	close(fd);
}

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static unsigned long number_option(const char *option, const char *text)
{
	char *end;
	unsigned long n = strtoul(text, &end, 0);
	if (!*text || *end || *text == '-') {
		fprintf(stderr, "leak: %s %s: not a number\n", option, text);
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"steps", required_argument, NULL, 's'},      {"step-ms", required_argument, NULL, 'm'},
		{"leak-bytes", required_argument, NULL, 'b'}, {"ready", required_argument, NULL, 'r'},
		{NULL, 0, NULL, 0},
	};
	unsigned long steps = 0, step_ms = 20, leak_bytes = 256 << 10;
	const char *ready = NULL;
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (option) {
		case 's': steps = number_option("--steps", optarg); break;
		case 'm': step_ms = number_option("--step-ms", optarg); break;
		case 'b': leak_bytes = number_option("--leak-bytes", optarg); break;
		case 'r': ready = optarg; break;
		default:
			fprintf(stderr, "usage: leak [--steps N] [--step-ms M] [--leak-bytes B] [--ready FILE]   (--steps 0: until Ctrl-C)\n");
			return 2;
		}
	}
	/* Without SA_RESTART, a signal interrupts the sleep between two steps. */
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);

	set_up();
	if (ready)
		touch(ready);
	struct timespec pause = {.tv_sec = (time_t)(step_ms / 1000), .tv_nsec = (long)(step_ms % 1000) * 1000000};
	for (unsigned long step = 0; !stop && (steps == 0 || step < steps); step++) {
		train_step((long)step, leak_bytes);
		nanosleep(&pause, NULL);
	}
	printf("leaked %llu bytes in %llu blocks by cache_activations\n", leaked_bytes, leaked_blocks);
	return 0;
}

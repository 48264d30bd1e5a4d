/* The CUDA driver, which simnccl finds by dlopen as NCCL does, and NCCL's kernels. */
#include "sim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct driver driver;

enum { DEVICES_MAX = 64, NAME_MAX_BYTES = 160, KERNELS_MAX = 512 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool found;

static void find(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	found = library != NULL;
#define X(name) found = found && (driver.name = (__typeof__(driver.name))dlsym(library, #name));
	DRIVER_FUNCTIONS(X)
#undef X
	if (!found)
		fprintf(stderr, "simnccl: error: libcuda.so.1: %s\n", dlerror());
	else
		driver.simcudaGateNextKernel =
			(__typeof__(driver.simcudaGateNextKernel))dlsym(library, "simcudaGateNextKernel");
}

ncclResult_t driver_ready(int *device)
{
	CUcontext context = NULL;
	CUdevice d = 0;
	pthread_once(&once, find);
	if (!found)
		return ncclSystemError;
	if (driver.cuInit(0) || driver.cuCtxGetCurrent(&context))
		return ncclUnhandledCudaError;
	if (!context && (driver.cuDevicePrimaryCtxRetain(&context, 0) || driver.cuCtxSetCurrent(context)))
		return ncclUnhandledCudaError;
	if (driver.cuCtxGetDevice(&d))
		return ncclUnhandledCudaError;
	*device = d;
	return ncclSuccess;
}

/* ---- kernels ---- */

static const char *const kernel_functions[] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"};
static const char *const kernel_types[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};

static const char *kernel_operator(const struct task *t)
{
	bool is_float = t->type >= ncclFloat16;
	switch (t->op) {
	case ncclSum: return "Sum";
	case ncclProd: return "Prod";
	case ncclMax: case ncclMin: return "MinMax";
	case ncclAvg: return is_float ? "PreMulSum" : "SumPostDiv";
	default: return "PreMulSum";
	}
}

/* Writes the mangled name of ncclDevKernel_…(ncclDevKernelArgsStorage<4096ul>). */
static void kernel_name_of(const struct task *t, char *out)
{
	char name[NAME_MAX_BYTES / 2];
	if (t->function >= COUNTED)
		snprintf(name, sizeof(name), "ncclDevKernel_SendRecv");
	else if (t->function == BROADCAST || t->function == ALL_GATHER)
		snprintf(name, sizeof(name), "ncclDevKernel_%s_RING_LL", kernel_functions[t->function]);
	else
		snprintf(name, sizeof(name), "ncclDevKernel_%s_%s_%s_RING_LL", kernel_functions[t->function], kernel_operator(t),
			 kernel_types[t->type]);
	snprintf(out, NAME_MAX_BYTES, "_Z%zu%s24ncclDevKernelArgsStorageILm4096EE", strlen(name), name);
}

static size_t add_kernel(char *ptx, size_t n, size_t room, const struct task *t)
{
	char name[NAME_MAX_BYTES];
	kernel_name_of(t, name);
	return n + (size_t)snprintf(ptx + n, room - n, ".visible .entry %s(.param .align 16 .b8 args[4096]) { ret; }\n", name);
}

static char *all_kernels(void)
{
	size_t room = 128 << 10, n = 0;
	char *ptx = malloc(room);
	if (!ptx)
		return NULL;
	n = (size_t)snprintf(ptx, room, ".version 8.0\n.target sm_90\n.address_size 64\n");
	n = add_kernel(ptx, n, room, &(struct task){.function = SEND});
	n = add_kernel(ptx, n, room, &(struct task){.function = BROADCAST});
	n = add_kernel(ptx, n, room, &(struct task){.function = ALL_GATHER});
	const enum function reducing[] = {REDUCE, REDUCE_SCATTER, ALL_REDUCE};
	const ncclRedOp_t operators[] = {ncclSum, ncclProd, ncclMax, ncclNumOps}; /* the last one: PreMulSum */
	for (int f = 0; f < 3; f++)
		for (int type = 0; type < ncclNumTypes; type++) {
			for (int o = 0; o < 4; o++)
				n = add_kernel(ptx, n, room, &(struct task){.function = reducing[f], .type = type, .op = operators[o]});
			if (type < ncclFloat16)
				n = add_kernel(ptx, n, room, &(struct task){.function = reducing[f], .type = type, .op = ncclAvg});
		}
	return ptx;
}

static CUresult load(CUmodule *out)
{
	char *ptx = all_kernels();
	CUresult result = ptx ? driver.cuModuleLoadData(out, ptx) : CUDA_ERROR_OUT_OF_MEMORY;
	free(ptx);
	return result;
}

ncclResult_t kernel_of(const struct task *task, CUfunction *out)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static CUmodule modules[DEVICES_MAX];
	static struct { char name[NAME_MAX_BYTES]; int device; CUfunction function; } kernels[KERNELS_MAX];
	static int len;
	char name[NAME_MAX_BYTES];
	int device = task->of->device;
	CUresult result = CUDA_SUCCESS;
	kernel_name_of(task, name);
	pthread_mutex_lock(&lock);
	int i = 0;
	while (i < len && (kernels[i].device != device || strcmp(kernels[i].name, name)))
		i++;
	if (i == len) {
		if (!modules[device])
			result = load(&modules[device]);
		if (!result)
			result = driver.cuModuleGetFunction(&kernels[i].function, modules[device], name);
		if (!result && len < KERNELS_MAX - 1) {
			kernels[i].device = device;
			strcpy(kernels[i].name, name);
			len++;
		}
	}
	*out = kernels[i].function;
	pthread_mutex_unlock(&lock);
	return result ? ncclUnhandledCudaError : ncclSuccess;
}

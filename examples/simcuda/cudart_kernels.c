/* Kernels of the runtime API. Before main, nvcc's host code registers the pairs of host stub and
 * kernel of each binary. A binary is loaded at the first launch of one of its kernels, as with
 * the real runtime's default CUDA_MODULE_LOADING=LAZY. */
#include "cudart_driver.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct binary {
	const void *image;
	CUlibrary library; /* NULL until the first launch of one of its kernels */
};

struct stub {
	const void *host;
	char *name; /* mangled name */
	struct binary *binary;
	CUkernel kernel;
	struct stub *next;
};

enum { CHAINS = 4096 };
static struct stub *chains[CHAINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct stub **chain_of(const void *host)
{
	return &chains[((uintptr_t)host >> 4) % CHAINS];
}

EXPORT void **__cudaRegisterFatBinary(void *fatCubin)
{
	struct binary *b = calloc(1, sizeof(*b));
	if (b)
		b->image = fatCubin;
	return (void **)b;
}

EXPORT void __cudaRegisterFatBinaryEnd(void **fatCubinHandle)
{
	(void)fatCubinHandle; /* nothing to do: launches look up each function */
}

EXPORT void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun, const char *deviceName,
				   int thread_limit, uint3 *tid, uint3 *bid, dim3 *bDim, dim3 *gDim, int *wSize)
{
	(void)deviceFun, (void)thread_limit, (void)tid, (void)bid, (void)bDim, (void)gDim, (void)wSize;
	struct stub *s = calloc(1, sizeof(*s));
	char *name = strdup(deviceName);
	if (!s || !name) {
		free(s);
		free(name);
		return; /* out of memory: the launch will return cudaErrorInvalidDeviceFunction */
	}
	s->host = hostFun;
	s->name = name;
	s->binary = (struct binary *)fatCubinHandle;
	pthread_mutex_lock(&lock);
	s->next = *chain_of(hostFun);
	*chain_of(hostFun) = s;
	pthread_mutex_unlock(&lock);
}

EXPORT void __cudaUnregisterFatBinary(void **fatCubinHandle)
{
	struct binary *b = (struct binary *)fatCubinHandle;
	pthread_mutex_lock(&lock);
	for (int i = 0; i < CHAINS; i++) {
		for (struct stub **link = &chains[i], *s; (s = *link);) {
			if (s->binary != b) {
				link = &s->next;
				continue;
			}
			*link = s->next;
			free(s->name);
			free(s);
		}
	}
	pthread_mutex_unlock(&lock);
	if (b && b->library)
		driver.cuLibraryUnload(b->library);
	free(b);
}

static CUresult load_locked(struct stub *s)
{
	CUresult result = CUDA_SUCCESS;
	if (!s->binary->library)
		result = driver.cuLibraryLoadData(&s->binary->library, s->binary->image, NULL, NULL, 0, NULL, NULL, 0);
	if (!result)
		result = driver.cuLibraryGetKernel(&s->kernel, s->binary->library, s->name);
	return result;
}

static cudaError_t kernel_of(const void *host, CUkernel *out)
{
	pthread_mutex_lock(&lock);
	struct stub *s = *chain_of(host);
	while (s && s->host != host)
		s = s->next;
	CUresult result = (CUresult)cudaErrorInvalidDeviceFunction;
	if (s && s->binary)
		result = s->kernel ? CUDA_SUCCESS : load_locked(s);
	*out = s ? s->kernel : NULL;
	pthread_mutex_unlock(&lock);
	return runtime_result(result);
}

typedef __typeof__(cuLaunchKernel) *launch_function;

static cudaError_t launch(launch_function how, CUkernel kernel, dim3 grid, dim3 block, void **args, size_t shared,
			  cudaStream_t stream)
{
	return runtime_result(how((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared, stream,
				  args, NULL));
}

EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernelPtr, const void *entryFuncAddr)
{
	cudaError_t error = runtime_ready();
	if (!error && !kernelPtr)
		error = runtime_result(CUDA_ERROR_INVALID_VALUE);
	return error ? error : kernel_of(entryFuncAddr, kernelPtr);
}

#define LAUNCH_HANDLE(fn, how)                                                                                              \
	EXPORT cudaError_t fn(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,              \
			      cudaStream_t stream)                                                                          \
	{                                                                                                                   \
		cudaError_t error = runtime_ready();                                                                        \
		return error ? error : launch(how, kernel, gridDim, blockDim, args, sharedMem, stream);                     \
	}
LAUNCH_HANDLE(__cudaLaunchKernel, driver.cuLaunchKernel)
LAUNCH_HANDLE(__cudaLaunchKernel_ptsz, driver.cuLaunchKernel_ptsz)

static cudaError_t find(const void *func, CUkernel *kernel)
{
	cudaError_t error = runtime_ready();
	return error ? error : kernel_of(func, kernel);
}

#define LAUNCH_STUB(fn, how)                                                                                                \
	EXPORT cudaError_t fn(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,                 \
			      cudaStream_t stream)                                                                          \
	{                                                                                                                   \
		CUkernel kernel = NULL;                                                                                     \
		cudaError_t error = find(func, &kernel);                                                                    \
		return error ? error : launch(how, kernel, gridDim, blockDim, args, sharedMem, stream);                     \
	}
LAUNCH_STUB(cudaLaunchKernel, driver.cuLaunchKernel)
LAUNCH_STUB(cudaLaunchKernel_ptsz, driver.cuLaunchKernel_ptsz)

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
					       cudaStream_t stream)
{
	CUkernel kernel = NULL;
	cudaError_t error = find(func, &kernel);
	return error ? error
		     : runtime_result(driver.cuLaunchCooperativeKernel((CUfunction)kernel, gridDim.x, gridDim.y, gridDim.z, blockDim.x,
								       blockDim.y, blockDim.z, (unsigned)sharedMem, stream, args));
}

#define LAUNCH_CONFIG(fn, how)                                                                                              \
	EXPORT cudaError_t fn(const cudaLaunchConfig_t *config, const void *func, void **args)                              \
	{                                                                                                                   \
		CUkernel kernel = NULL;                                                                                     \
		cudaError_t error = find(func, &kernel);                                                                    \
		if (error || !config)                                                                                       \
			return error ? error : runtime_result(CUDA_ERROR_INVALID_VALUE);                                    \
		const CUlaunchConfig c = driver_config(config);                                                             \
		return runtime_result(how(&c, (CUfunction)kernel, args, NULL));                                             \
	}

static CUlaunchConfig driver_config(const cudaLaunchConfig_t *c)
{
	return (CUlaunchConfig){c->gridDim.x, c->gridDim.y, c->gridDim.z, c->blockDim.x, c->blockDim.y, c->blockDim.z,
				(unsigned)c->dynamicSmemBytes, c->stream, c->attrs, c->numAttrs};
}

LAUNCH_CONFIG(cudaLaunchKernelExC, driver.cuLaunchKernelEx)
LAUNCH_CONFIG(cudaLaunchKernelExC_ptsz, driver.cuLaunchKernelEx_ptsz)

#include "cudart_driver.h"

#include "identity.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>

enum { DEVICES_MAX = 64 };

struct driver driver;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cudaError_t load_result;
static int device_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Primary context of each device, retained once per process and never released, as in the real
 * runtime. */
static CUcontext primary[DEVICES_MAX];

static __thread int device;
static __thread bool bound;
static __thread cudaError_t last;

static void load(void)
{
	load_result = cudaErrorInsufficientDriver;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	__typeof__(cuGetProcAddress_v2) *get = library ? (__typeof__(get))dlsym(library, "cuGetProcAddress_v2") : NULL;
	if (!get)
		return;
#define FIND(name, member, flag)                                                                                \
	if (get(#name, (void **)&driver.member, CUDA_VERSION, flag, NULL) || !driver.member)                    \
		return;
#define X(name, type) FIND(name, name, CU_GET_PROC_ADDRESS_LEGACY_STREAM)
	DRIVER_FUNCTIONS(X)
#undef X
#define X(name, type) FIND(name, name##_ptsz, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
	DRIVER_FUNCTIONS_PTSZ(X)
#undef X
	load_result = (cudaError_t)driver.cuInit(0);
	if (!load_result)
		load_result = (cudaError_t)driver.cuDeviceGetCount(&device_count);
}

cudaError_t runtime_result(CUresult result)
{
	if (result)
		last = (cudaError_t)result;
	return (cudaError_t)result;
}

cudaError_t runtime_last_error(void)
{
	cudaError_t error = last;
	last = cudaSuccess;
	return error;
}

cudaError_t runtime_load(void)
{
	pthread_once(&once, load);
	return runtime_result((CUresult)load_result);
}

static CUresult bind(void)
{
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&lock);
	if (!primary[device])
		result = driver.cuDevicePrimaryCtxRetain(&primary[device], device);
	CUcontext context = primary[device];
	pthread_mutex_unlock(&lock);
	return result ? result : driver.cuCtxSetCurrent(context);
}

cudaError_t runtime_ready(void)
{
	if (bound)
		return cudaSuccess;
	cudaError_t error = runtime_load();
	if (error)
		return error;
	/* Keep a context that the program made current through the driver API. */
	CUcontext current = NULL;
	CUresult result = driver.cuCtxGetCurrent(&current);
	if (!result && !current)
		result = bind();
	bound = !result;
	return runtime_result(result);
}

cudaError_t runtime_set_device(int d)
{
	cudaError_t error = runtime_load();
	if (error)
		return error;
	if (d < 0 || d >= device_count || d >= DEVICES_MAX)
		return runtime_result(CUDA_ERROR_INVALID_DEVICE);
	device = d;
	CUresult result = bind();
	bound = !result;
	return runtime_result(result);
}

int runtime_device(void)
{
	return device;
}

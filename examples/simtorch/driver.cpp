#include "driver.h"

#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

static std::vector<CUcontext> contexts;
static thread_local int current = -1;

void driver_check(CUresult result, const char *name)
{
	if (result != CUDA_SUCCESS)
		throw std::runtime_error(std::string(name) + " returned error " + std::to_string(result));
}

int driver_start()
{
	static std::once_flag once;
	std::call_once(once, [] {
		int devices;
		CU(cuInit, 0);
		CU(cuDeviceGetCount, &devices);
		contexts.resize(devices);
		for (int i = 0; i < devices; i++)
			CU(cuDevicePrimaryCtxRetain, &contexts[i], i);
	});
	return (int)contexts.size();
}

void driver_use(int device)
{
	if (device == current)
		return;
	CU(cuCtxSetCurrent, contexts.at(device));
	current = device;
}

size_t driver_memory(int device)
{
	size_t bytes;
	CU(cuDeviceTotalMem_v2, &bytes, device);
	return bytes;
}

/* Tests of NVML: the same devices as the driver, and values that follow the simulated work of
 * other processes. */
#include "selftest.h"

#include "nvml_sim.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define NVML(fn, ...) (((__typeof__(fn) *)symbol_of("libnvidia-ml.so.1", #fn))(__VA_ARGS__))

static nvmlDevice_t handle(unsigned int index)
{
	nvmlDevice_t device;
	CHECK_OK(NVML(nvmlDeviceGetHandleByIndex_v2, index, &device));
	return device;
}

/* NVML before any CUDA process has run. */
void test_nvml_alone(void)
{
	unsigned int n;
	char text[96];
	nvmlDevice_t device, same;
	nvmlMemory_t memory;
	nvmlMemory_v2_t memory2 = {0};
	nvmlPciInfo_t pci;
	nvmlUtilization_t use;
	CHECK_RESULT(NVML_ERROR_UNINITIALIZED, NVML(nvmlDeviceGetCount_v2, &n));
	CHECK_RESULT(NVML_ERROR_UNINITIALIZED, NVML(nvmlShutdown));
	CHECK_OK(NVML(nvmlInit_v2));
	CHECK_OK(NVML(nvmlDeviceGetCount_v2, &n));
	CHECK(n == 3);
	CHECK_OK(NVML(nvmlSystemGetDriverVersion, text, sizeof(text)));
	CHECK(!strcmp(text, "580.0-sim"));
	CHECK_RESULT(NVML_ERROR_INSUFFICIENT_SIZE, NVML(nvmlSystemGetDriverVersion, text, 4));
	CHECK_RESULT(NVML_ERROR_INVALID_ARGUMENT, NVML(nvmlDeviceGetHandleByIndex_v2, 3, &device));
	device = handle(2);
	CHECK_OK(NVML(nvmlDeviceGetUUID, device, text, sizeof(text)));
	CHECK(strlen(text) == 40 && !strncmp(text, "GPU-", 4));
	CHECK_OK(NVML(nvmlDeviceGetHandleByUUID, text, &same));
	CHECK(same == device);
	CHECK_RESULT(NVML_ERROR_NOT_FOUND, NVML(nvmlDeviceGetHandleByUUID, "GPU-0", &same));
	CUuuid uuid;
	CHECK_OK(CU(cuInit, 0));
	CHECK_OK(CU(cuDeviceGetUuid_v2, &uuid, 2));
	char first[8];
	snprintf(first, sizeof(first), "%02x%02x", (unsigned char)uuid.bytes[0], (unsigned char)uuid.bytes[1]);
	CHECK(!strncmp(text + 4, first, 4));
	CHECK_OK(NVML(nvmlDeviceGetPciInfo_v3, device, &pci));
	CHECK(!strcmp(pci.busId, "00000000:28:00.0") && !strcmp(pci.busIdLegacy, "0000:28:00.0") && pci.bus == 0x28);
	CHECK_OK(CU(cuDeviceGetPCIBusId, text, sizeof(text), 2));
	CHECK(!strcmp(text, pci.busIdLegacy));
	CHECK_OK(NVML(nvmlDeviceGetIndex, device, &n));
	CHECK(n == 2);
	CHECK_OK(NVML(nvmlDeviceGetMemoryInfo, device, &memory));
	CHECK(memory.total == 1 << 30 && memory.used == 0 && memory.free == 1 << 30);
	CHECK_RESULT(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML(nvmlDeviceGetMemoryInfo_v2, device, &memory2));
	memory2.version = (unsigned)sizeof(memory2) | 2 << 24;
	CHECK_OK(NVML(nvmlDeviceGetMemoryInfo_v2, device, &memory2));
	CHECK(memory2.total == 1 << 30 && memory2.free == 1 << 30);
	CHECK_OK(NVML(nvmlDeviceGetUtilizationRates, device, &use));
	CHECK(use.gpu == 0);
	CHECK_RESULT(NVML_ERROR_NOT_SUPPORTED, NVML(nvmlDeviceGetFanSpeed, device, &n));
	CHECK_OK(NVML(nvmlShutdown));
	CHECK_RESULT(NVML_ERROR_UNINITIALIZED, NVML(nvmlDeviceGetCount_v2, &n));
}

/* Three devices. One device is divided into MIG devices. */
void test_nvml_mig(void)
{
	unsigned int n, pending;
	char text[96];
	nvmlDevice_t mig, parent;
	nvmlMemory_t memory;
	CHECK_OK(NVML(nvmlInit_v2));
	CHECK_OK(NVML(nvmlDeviceGetMigMode, handle(0), &n, &pending));
	CHECK(n == 0);
	CHECK_RESULT(NVML_ERROR_NOT_SUPPORTED, NVML(nvmlDeviceGetMigDeviceHandleByIndex, handle(0), 0, &mig));
	CHECK_OK(NVML(nvmlDeviceGetMigMode, handle(1), &n, &pending));
	CHECK(n == 1);
	CHECK_OK(NVML(nvmlDeviceGetMaxMigDeviceCount, handle(1), &n));
	CHECK(n == 7);
	CHECK_RESULT(NVML_ERROR_NOT_FOUND, NVML(nvmlDeviceGetMigDeviceHandleByIndex, handle(1), 2, &mig));
	CHECK_OK(NVML(nvmlDeviceGetMigDeviceHandleByIndex, handle(1), 1, &mig));
	CHECK_OK(NVML(nvmlDeviceGetName, mig, text, sizeof(text)));
	CHECK(!strcmp(text, "SimCUDA GPU MIG 2g.20gb"));
	CHECK_OK(NVML(nvmlDeviceGetUUID, mig, text, sizeof(text)));
	CHECK(strlen(text) == 40 && !strncmp(text, "MIG-a111", 8));
	CHECK_OK(NVML(nvmlDeviceGetMemoryInfo, mig, &memory));
	CHECK(memory.total == 20ull << 30);
	CHECK_OK(NVML(nvmlDeviceGetGpuInstanceId, mig, &n));
	CHECK(n == 8);
	CHECK_RESULT(NVML_ERROR_INVALID_ARGUMENT, NVML(nvmlDeviceGetGpuInstanceId, handle(1), &n));
	CHECK_RESULT(NVML_ERROR_INVALID_ARGUMENT, NVML(nvmlDeviceGetPowerUsage, mig, &n));
	CHECK_OK(NVML(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, mig, &parent));
	CHECK(parent == handle(1));
	CHECK_OK(NVML(nvmlDeviceGetMigMode, handle(2), &n, &pending));
	CHECK(n == 1);
	CHECK_RESULT(NVML_ERROR_NOT_FOUND, NVML(nvmlDeviceGetMigDeviceHandleByIndex, handle(2), 0, &mig));
	CHECK_OK(NVML(nvmlShutdown));
}

struct sample {
	nvmlUtilization_t use;
	unsigned int power, celsius, clock;
	unsigned long long energy, reasons;
	nvmlPstates_t state;
};

static struct sample sample(nvmlDevice_t d)
{
	struct sample s;
	CHECK_OK(NVML(nvmlDeviceGetUtilizationRates, d, &s.use));
	CHECK_OK(NVML(nvmlDeviceGetPowerUsage, d, &s.power));
	CHECK_OK(NVML(nvmlDeviceGetTemperature, d, NVML_TEMPERATURE_GPU, &s.celsius));
	CHECK_OK(NVML(nvmlDeviceGetClockInfo, d, NVML_CLOCK_SM, &s.clock));
	CHECK_OK(NVML(nvmlDeviceGetTotalEnergyConsumption, d, &s.energy));
	CHECK_OK(NVML(nvmlDeviceGetCurrentClocksEventReasons, d, &s.reasons));
	CHECK_OK(NVML(nvmlDeviceGetPerformanceState, d, &s.state));
	return s;
}

void test_nvml_follows(void)
{
	CUmodule module;
	CUfunction f;
	CUdeviceptr p;
	nvmlMemory_t memory;
	start_cuda();
	CHECK_OK(CU(cuModuleLoadData, &module, test_ptx));
	CHECK_OK(CU(cuModuleGetFunction, &f, module, "scale_kernel"));
	CHECK_OK(NVML(nvmlInitWithFlags, 0));
	nvmlDevice_t d = handle(0);
	struct sample idle = sample(d);
	CHECK(idle.use.gpu == 0 && idle.power == 70000 && idle.celsius == 30 && idle.reasons == nvmlClocksEventReasonGpuIdle);
	CHECK(idle.state == NVML_PSTATE_8);

	/* 50 kernels of 10 ms: half a second of continuous work. */
	for (int i = 0; i < 50; i++)
		CHECK_OK(CU(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	sleep_ms(250);
	struct sample busy = sample(d), other = sample(handle(1));
	CHECK(busy.use.gpu >= 99 && busy.power >= 690000 && busy.celsius >= 74 && busy.clock > idle.clock);
	CHECK(busy.reasons == nvmlClocksEventReasonNone && busy.state == NVML_PSTATE_0);
	/* 0.25 s at between 70 and 700 W */
	CHECK(busy.energy > idle.energy + 100000 && busy.energy < idle.energy + 700000);
	CHECK(other.use.gpu == 0);
	CHECK_OK(CU(cuCtxSynchronize));
	sleep_ms(200);
	struct sample after = sample(d);
	CHECK(after.use.gpu == 0 && after.power == 70000);
	CHECK(after.energy > busy.energy);

	/* The device is busy for a third of the time. */
	for (int i = 0; i < 14; i++) {
		CHECK_OK(CU(cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
		sleep_ms(30);
	}
	struct sample third = sample(d);
	CHECK(third.use.gpu >= 15 && third.use.gpu <= 50);

	CHECK_OK(CU(cuMemAlloc_v2, &p, 100 << 20));
	CHECK_OK(NVML(nvmlDeviceGetMemoryInfo, d, &memory));
	CHECK(memory.used == 100 << 20);
	CHECK_OK(CU(cuMemFree_v2, p));
	CHECK_OK(NVML(nvmlDeviceGetMemoryInfo, d, &memory));
	CHECK(memory.used == 0);
}

/* NVML lists another process while it lives. The memory of that process counts as used for all
 * processes, and is free after it is killed. */
void test_nvml_processes(void)
{
	nvmlProcessInfo_t list[4];
	unsigned int n = 4;
	int ready[2], status;
	char byte;
	size_t free_bytes, total;
	CUdeviceptr p;
	CHECK_OK(NVML(nvmlInit_v2));
	nvmlDevice_t d = handle(0);
	CHECK_OK(NVML(nvmlDeviceGetComputeRunningProcesses_v3, d, &n, list));
	CHECK(n == 0);
	CHECK(!pipe(ready));
	pid_t child = fork();
	if (child == 0) {
		start_cuda();
		if (CU(cuMemAlloc_v2, &p, 600 << 20) || write(ready[1], "r", 1) != 1)
			_exit(1);
		pause();
	}
	CHECK(read(ready[0], &byte, 1) == 1);
	n = 4;
	CHECK_OK(NVML(nvmlDeviceGetComputeRunningProcesses_v3, d, &n, list));
	CHECK(n == 1 && list[0].pid == (unsigned)child && list[0].usedGpuMemory == 600 << 20);
	n = 0;
	CHECK_RESULT(NVML_ERROR_INSUFFICIENT_SIZE, NVML(nvmlDeviceGetComputeRunningProcesses_v2, d, &n, NULL));
	CHECK(n == 1);
	start_cuda();
	CHECK_OK(CU(cuMemGetInfo_v2, &free_bytes, &total));
	CHECK(free_bytes == (1024 - 600) << 20 && total == 1 << 30);
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2, &p, 600 << 20));
	CHECK(!kill(child, SIGKILL) && waitpid(child, &status, 0) == child);
	n = 4;
	CHECK_OK(NVML(nvmlDeviceGetComputeRunningProcesses_v3, d, &n, list));
	CHECK(n == 1 && list[0].pid == (unsigned)getpid());
	CHECK_OK(CU(cuMemAlloc_v2, &p, 600 << 20));
}

/* Tests of the ledger: every column for every kind of call, threads, forked children, and that
 * no line is lost or torn. */
#include "selftest.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POINTER(p) ((unsigned long)(uintptr_t)(p))

static void check_common(const struct line *l, const char *result, CUcontext context, int device)
{
	CHECK(field_is(l, PID, "%d", (int)getpid()));
	CHECK(field_is(l, TID, "%d", (int)gettid()));
	CHECK(field_is(l, RESULT, "%s", result));
	CHECK(field_is(l, CONTEXT, "0x%lx", POINTER(context)));
	CHECK(field_is(l, DEVICE, "%d", device));
	CHECK(strtoull(l->field[START_NS], NULL, 10) <= strtoull(l->field[END_NS], NULL, 10));
}

static void check_memory(CUcontext context)
{
	CUdeviceptr p;
	size_t pitch;
	CHECK_OK(CU(cuMemAlloc_v2, &p, 1000));
	const struct line *l = ledger_last("cuMemAlloc_v2");
	check_common(l, "0", context, 1);
	CHECK(field_is(l, PTR, "0x%llx", p) && field_is(l, BYTES, "1000"));
	CHECK_OK(CU(cuMemFree_v2, p));
	l = ledger_last("cuMemFree_v2");
	CHECK(field_is(l, PTR, "0x%llx", p) && field_is(l, BYTES, "0"));
	CHECK_RESULT(2, CU(cuMemAlloc_v2, &p, (size_t)1 << 50));
	l = ledger_last("cuMemAlloc_v2");
	check_common(l, "2", context, 1);
	CHECK(field_is(l, PTR, "0x0") && field_is(l, BYTES, "1125899906842624"));
	CHECK_OK(CU(cuMemAllocPitch_v2, &p, &pitch, 1000, 3, 4));
	CHECK(field_is(ledger_last("cuMemAllocPitch_v2"), BYTES, "3072"));
	CHECK_OK(CU_VARIANT(cuMemAllocAsync_ptsz, cuMemAllocAsync, &p, 7, CU_STREAM_PER_THREAD));
	l = ledger_last("cuMemAllocAsync_ptsz");
	CHECK(field_is(l, STREAM, "0x2") && field_is(l, PTR, "0x%llx", p) && field_is(l, BYTES, "7"));
}

static void check_copies(void)
{
	static char host[4096];
	CUdeviceptr a, b;
	CUstream s;
	CHECK_OK(CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING));
	CHECK(field_is(ledger_last("cuStreamCreate"), PTR, "0x%lx", POINTER(s)));
	CHECK(field_is(ledger_last("cuStreamCreate"), VALUE, "1"));
	CHECK_OK(CU(cuMemAlloc_v2, &a, 8192));
	CHECK_OK(CU(cuMemAlloc_v2, &b, 8192));
	CHECK_OK(CU(cuMemcpyHtoDAsync_v2, a, host, 4096, s));
	const struct line *l = ledger_last("cuMemcpyHtoDAsync_v2");
	CHECK(field_is(l, PTR, "0x%llx", a) && field_is(l, SRC_PTR, "0x%lx", POINTER(host)));
	CHECK(field_is(l, BYTES, "4096") && field_is(l, STREAM, "0x%lx", POINTER(s)));
	CHECK_OK(CU(cuMemcpyDtoD_v2, b, a, 100));
	l = ledger_last("cuMemcpyDtoD_v2");
	CHECK(field_is(l, PTR, "0x%llx", b) && field_is(l, SRC_PTR, "0x%llx", a) && field_is(l, STREAM, "0x0"));
	CHECK_OK(CU(cuMemsetD32Async, a, 5, 100, s));
	l = ledger_last("cuMemsetD32Async");
	CHECK(field_is(l, BYTES, "400") && field_is(l, VALUE, "5") && field_is(l, PTR, "0x%llx", a));
	CHECK_OK(CU(cuStreamSynchronize, s));
	CHECK(field_is(ledger_last("cuStreamSynchronize"), STREAM, "0x%lx", POINTER(s)));
}

static void check_launches(void)
{
	CUlibrary library;
	CUkernel k;
	CUevent e;
	CHECK_OK(CU(cuLibraryLoadData, &library, test_ptx, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(CU(cuLibraryGetKernel, &k, library, "_Z4gemmPKfS0_Pfi"));
	const struct line *l = ledger_last("cuLibraryGetKernel");
	CHECK(field_is(l, FUNCTION, "0x%lx", POINTER(k)) && field_is(l, KERNEL, "_Z4gemmPKfS0_Pfi"));
	CHECK_OK(CU(cuLaunchKernel, (CUfunction)k, 7, 6, 5, 4, 3, 2, 99, NULL, NULL, NULL));
	l = ledger_last("cuLaunchKernel");
	CHECK(field_is(l, FUNCTION, "0x%lx", POINTER(k)) && field_is(l, KERNEL, "_Z4gemmPKfS0_Pfi"));
	CHECK(field_is(l, GRID_X, "7") && field_is(l, GRID_Y, "6") && field_is(l, GRID_Z, "5"));
	CHECK(field_is(l, BLOCK_X, "4") && field_is(l, BLOCK_Y, "3") && field_is(l, BLOCK_Z, "2"));
	CHECK(field_is(l, SHARED_BYTES, "99") && field_is(l, STREAM, "0x0"));
	CUlaunchConfig c = {9, 8, 7, 6, 5, 4, 33, CU_STREAM_LEGACY, NULL, 0};
	CHECK_OK(CU(cuLaunchKernelEx, &c, (CUfunction)k, NULL, NULL));
	l = ledger_last("cuLaunchKernelEx");
	CHECK(field_is(l, GRID_X, "9") && field_is(l, BLOCK_Z, "4") && field_is(l, SHARED_BYTES, "33") && field_is(l, STREAM, "0x1"));
	CHECK_OK(CU(cuEventCreate, &e, 0));
	CHECK_OK(CU(cuEventRecord, e, CU_STREAM_LEGACY));
	l = ledger_last("cuEventRecord");
	CHECK(field_is(l, PTR, "0x%lx", POINTER(e)) && field_is(l, STREAM, "0x1"));
}

void test_ledger_columns(void)
{
	CUcontext context;
	CHECK_OK(CU(cuInit, 0));
	check_common(ledger_last("cuInit"), "0", NULL, -1);
	CHECK_OK(CU(cuCtxCreate_v2, &context, 0, 1));
	const struct line *l = ledger_last("cuCtxCreate_v2");
	check_common(l, "0", NULL, -1); /* the context before the call */
	CHECK(field_is(l, PTR, "0x%lx", POINTER(context)) && field_is(l, VALUE, "1"));
	check_memory(context);
	check_copies();
	check_launches();
	void *p;
	CHECK_OK(CU(cuGetProcAddress_v2, "cuMemAlloc", &p, 13000, 1, NULL));
	l = ledger_last("cuGetProcAddress_v2");
	CHECK(field_is(l, PTR, "0x%lx", POINTER(p)) && field_is(l, VALUE, "1") && field_is(l, KERNEL, "cuMemAlloc"));
	int before, after;
	const char *name;
	free(ledger_lines(&before));
	CHECK_OK(CU(cuGetErrorName, CUDA_SUCCESS, &name));
	free(ledger_lines(&after));
	CHECK(before == after);
}

enum { THREADS = 4, CALLS = 5000 };

static void *queries(void *context)
{
	bool ok = !CU(cuCtxSetCurrent, context);
	__typeof__(cuStreamQuery) *query = symbol_of("libcuda.so.1", "cuStreamQuery");
	for (int i = 1; i < CALLS; i++)
		ok &= !query(NULL);
	CHECK(ok);
	return NULL;
}

/* All lines of a thread are in the file when it has ended, complete and in order. */
void test_ledger_threads(void)
{
	pthread_t threads[THREADS];
	CUcontext context = start_cuda();
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, queries, context));
	for (int i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], NULL));
	int n;
	struct line *lines = ledger_lines(&n);
	CHECK(n == THREADS * CALLS); /* the lines of the main thread are still in its buffer */
	unsigned long long last_end = 0;
	const char *last_tid = "";
	int tids = 0;
	bool ordered = true;
	for (int i = 0; i < n; i++) {
		if (strcmp(last_tid, lines[i].field[TID])) {
			tids++;
			last_end = 0;
		}
		last_tid = lines[i].field[TID];
		ordered &= strtoull(lines[i].field[START_NS], NULL, 10) >= last_end || tids > THREADS;
		last_end = strtoull(lines[i].field[END_NS], NULL, 10);
	}
	CHECK(ordered);
	free(lines);
}

void test_ledger_fork(void)
{
	CUdevice device;
	int version, status;
	CHECK_OK(CU(cuDriverGetVersion, &version));
	/* A child forked before the parent initialised CUDA can use CUDA normally. */
	pid_t child = fork();
	if (child == 0) {
		start_cuda();
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	const struct line *l = ledger_last("cuCtxSetCurrent");
	CHECK(field_is(l, PID, "%d", (int)child) && field_is(l, TID, "%d", (int)child) && field_is(l, RESULT, "0"));

	CHECK_OK(CU(cuInit, 0));
	child = fork();
	if (child == 0)
		_exit(CU(cuDeviceGet, &device, 0) == CUDA_ERROR_NOT_INITIALIZED && CU(cuInit, 0) == CUDA_ERROR_NOT_INITIALIZED ? 0 : 1);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	l = ledger_last("cuDeviceGet");
	CHECK(field_is(l, PID, "%d", (int)child) && field_is(l, RESULT, "3"));
	CHECK_OK(CU(cuDeviceGet, &device, 0));
	CHECK(field_is(ledger_last("cuDeviceGet"), PID, "%d", (int)getpid()));
}

/* Runs storm. All its calls are in the ledger, and the same seed gives the same calls. */
static void run_storm(const char *path, int calls, char *names, size_t size)
{
	char command[256], line[4096];
	snprintf(command, sizeof(command), "'%s' --calls %d --threads 1 --seed 7 2>&1", path, calls);
	FILE *out = popen(command, "r");
	CHECK(out && fgets(line, sizeof(line), out));
	int done = -1;
	CHECK(sscanf(line, "done %d", &done) == 1 && done == calls);
	CHECK(fgets(line, sizeof(line), out));
	CHECK(pclose(out) == 0);
	int n, kept = 0;
	struct line *lines = ledger_lines(&n);
	CHECK(n > calls);
	size_t used = 0;
	bool mine = false;
	for (int i = 0; i < n; i++) {
		/* Skip the lines of storm's main thread. Compare only the calls after the
		 * set-up. */
		if (strcmp(lines[i].field[PID], lines[i].field[TID]) == 0)
			continue;
		mine |= !strcmp(lines[i].field[NAME], "cuMemHostAlloc");
		if (!mine)
			continue;
		kept++;
		used += (size_t)snprintf(names + used, size - used, "%s %s\n", lines[i].field[NAME], lines[i].field[BYTES]);
	}
	CHECK(kept == calls + 1);
	free(lines);
}

void test_ledger_storm(void)
{
	enum { STORM_CALLS = 5000, NAMES = STORM_CALLS * 48 };
	static char first[NAMES], second[NAMES];
	char storm[512];
	ssize_t n = readlink("/proc/self/exe", storm, sizeof(storm) - 8);
	CHECK(n > 0);
	storm[n] = 0;
	strcpy(strrchr(storm, '/'), "/storm");
	run_storm(storm, STORM_CALLS, first, sizeof(first));
	CHECK(!unlink(getenv("SIMCUDA_LEDGER")));
	run_storm(storm, STORM_CALLS, second, sizeof(second));
	CHECK(first[0] && !strcmp(first, second));
}

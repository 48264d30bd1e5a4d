/* Tests of ledger columns for virtual memory, graphs and 2D/3D copies, and of the programs every
 * and torchrun. */
#include "selftest.h"

#include <unistd.h>

#define POINTER(p) ((unsigned long long)(uintptr_t)(p))

/* Checks ptr, bytes, src_ptr and value of the last ledger line of the function. */
#define LINE(name, ptr, bytes, src, value)                                                                                   \
	do {                                                                                                                 \
		const struct line *l_ = ledger_last(name);                                                                   \
		CHECK(field_is(l_, PTR, "0x%llx", POINTER(ptr)) && field_is(l_, BYTES, "%llu", (unsigned long long)(bytes))); \
		CHECK(field_is(l_, SRC_PTR, "0x%llx", POINTER(src)) && field_is(l_, VALUE, "%lld", (long long)(value)));     \
	} while (0)
#define ON(name, stream) CHECK(field_is(ledger_last(name), STREAM, "0x%llx", POINTER(stream)))

static void check_virtual_memory(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
	const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle h, none = 0;
	CUdeviceptr va;
	enum { SIZE = 4 << 20, OFFSET = 2 << 20 };
	CHECK_OK(CU(cuMemAddressReserve, &va, 2 * SIZE, 0, 0, 0));
	LINE("cuMemAddressReserve", va, 2 * SIZE, 0, 0);
	CHECK_OK(CU(cuMemCreate, &h, SIZE, &prop, 0));
	LINE("cuMemCreate", h, SIZE, 0, 1);
	CHECK_RESULT(2, CU(cuMemCreate, &none, (size_t)1 << 50, &prop, 0));
	LINE("cuMemCreate", 0, 1ull << 50, 0, 1);
	CHECK_OK(CU(cuMemMap, va, OFFSET, OFFSET, h, 0));
	LINE("cuMemMap", va, OFFSET, h, OFFSET);
	CHECK_OK(CU(cuMemSetAccess, va, OFFSET, &access, 1));
	LINE("cuMemSetAccess", va, OFFSET, 0, 0);
	CHECK_OK(CU(cuMemRetainAllocationHandle, &h, (void *)(uintptr_t)(va + 99)));
	LINE("cuMemRetainAllocationHandle", h, 0, va + 99, 0);
	CHECK_OK(CU(cuMemUnmap, va, OFFSET));
	LINE("cuMemUnmap", va, OFFSET, 0, 0);
	CHECK_OK(CU(cuMemRelease, h));
	LINE("cuMemRelease", h, 0, 0, 0);
	CHECK_OK(CU(cuMemAddressFree, va, 2 * SIZE));
	LINE("cuMemAddressFree", va, 2 * SIZE, 0, 0);
}

static void check_pools(CUstream s)
{
	CUmemoryPool pool;
	CUdeviceptr p;
	uint64_t value = 12345;
	CHECK_OK(CU(cuDeviceGetDefaultMemPool, &pool, 1));
	LINE("cuDeviceGetDefaultMemPool", pool, 0, 0, 1);
	CHECK_OK(CU(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
	LINE("cuMemPoolSetAttribute", pool, 12345, 0, 4);
	CHECK_OK(CU(cuMemAllocFromPoolAsync, &p, 777, pool, s));
	LINE("cuMemAllocFromPoolAsync", p, 777, pool, 0);
	ON("cuMemAllocFromPoolAsync", s);
	CHECK_OK(CU(cuMemPoolGetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
	LINE("cuMemPoolGetAttribute", pool, 1024, 0, 7);
	CHECK_OK(CU(cuMemPoolTrimTo, pool, 4711));
	LINE("cuMemPoolTrimTo", pool, 4711, 0, 0);
}

static void check_arrays(CUdeviceptr p)
{
	const CUDA_ARRAY3D_DESCRIPTOR desc = {10, 0, 3, CU_AD_FORMAT_HALF, 4, 0};
	CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = p, .srcPitch = 64, .dstMemoryType = CU_MEMORYTYPE_ARRAY,
			   .WidthInBytes = 40, .Height = 1};
	CUarray array;
	CUmipmappedArray mipmapped;
	char host[64];
	CHECK_OK(CU(cuArray3DCreate_v2, &array, &desc));
	LINE("cuArray3DCreate_v2", array, 10 * 3 * 4 * 2, 0, 0);
	CHECK_OK(CU(cuMipmappedArrayCreate, &mipmapped, &desc, 2));
	LINE("cuMipmappedArrayCreate", mipmapped, 240, 0, 2);
	c.dstArray = array;
	CHECK_OK(CU(cuMemcpy2D_v2, &c));
	LINE("cuMemcpy2D_v2", array, 40, p, 0);
	CHECK_OK(CU(cuMemcpyAtoH_v2, host, array, 8, 16));
	LINE("cuMemcpyAtoH_v2", host, 16, array, 0);
	CHECK_OK(CU(cuMemsetD2D16Async, p, 512, 9, 10, 11, NULL));
	LINE("cuMemsetD2D16Async", p, 220, 0, 9);
}

static void check_graphs(CUstream s, CUdeviceptr p)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {.gridDimX = 3, .gridDimY = 2, .gridDimZ = 1, .blockDimX = 4, .blockDimY = 5, .blockDimZ = 6,
					  .sharedMemBytes = 70};
	CUDA_MEM_ALLOC_NODE_PARAMS memory = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, .bytesize = 600};
	CUgraph graph, made;
	CUgraphNode node;
	CUgraphExec exec;
	CUmodule module;
	CHECK_OK(CU(cuModuleLoadData, &module, test_ptx));
	CHECK_OK(CU(cuModuleGetFunction, &kernel.func, module, "scale_kernel"));
	CHECK_OK(CU(cuGraphCreate, &made, 0));
	LINE("cuGraphCreate", made, 0, 0, 0);
	CHECK_OK(CU(cuGraphAddKernelNode_v2, &node, made, NULL, 0, &kernel));
	LINE("cuGraphAddKernelNode_v2", node, 0, made, 0);
	const struct line *l = ledger_last("cuGraphAddKernelNode_v2");
	CHECK(field_is(l, FUNCTION, "0x%llx", POINTER(kernel.func)) && field_is(l, KERNEL, "scale_kernel"));
	CHECK(field_is(l, GRID_X, "3") && field_is(l, BLOCK_Z, "6") && field_is(l, SHARED_BYTES, "70"));
	CHECK_OK(CU(cuGraphAddMemAllocNode, &node, made, NULL, 0, &memory));
	LINE("cuGraphAddMemAllocNode", memory.dptr, 600, made, 0);
	CHECK_OK(CU(cuGraphAddMemFreeNode, &node, made, &node, 1, memory.dptr));
	LINE("cuGraphAddMemFreeNode", memory.dptr, 0, made, 0);
	CHECK_OK(CU(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_RELAXED));
	LINE("cuStreamBeginCapture_v2", 0, 0, 0, 2);
	ON("cuStreamBeginCapture_v2", s);
	CHECK_OK(CU(cuMemsetD8Async, p, 1, 50, s)); /* a captured call has a ledger line too */
	LINE("cuMemsetD8Async", p, 50, 0, 1);
	CHECK_OK(CU(cuStreamEndCapture, s, &graph));
	LINE("cuStreamEndCapture", graph, 0, 0, 0);
	CHECK_OK(CU(cuGraphInstantiateWithFlags, &exec, graph, 0));
	LINE("cuGraphInstantiateWithFlags", exec, 0, graph, 0);
	CHECK_OK(CU(cuGraphLaunch, exec, s));
	LINE("cuGraphLaunch", exec, 0, 0, 0);
	ON("cuGraphLaunch", s);
	CHECK_OK(CU(cuGraphClone, &made, graph));
	LINE("cuGraphClone", made, 0, graph, 0);
	CHECK_RESULT(CUDA_ERROR_ILLEGAL_STATE, CU(cuStreamEndCapture, s, &graph));
	LINE("cuStreamEndCapture", 0, 0, 0, 0);
}

static void nothing(void *data)
{
	(void)data;
}

void test_ledger_new_columns(void)
{
	CUcontext context, other;
	CUdeviceptr p, dsts[2], srcs[2];
	CUmemcpyAttributes attributes = {.srcAccessOrder = 1};
	CUipcMemHandle handle;
	CUstream s;
	size_t sizes[2] = {40, 60}, index = 0;
	char host[64];
	context = start_cuda();
	CHECK_OK(CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING));
	CHECK_OK(CU(cuMemAlloc_v2, &p, 65536));
	check_virtual_memory();
	check_pools(s);
	check_arrays(p);
	check_graphs(s, p);
	CHECK_OK(CU(cuMemHostRegister_v2, host, 64, 0));
	LINE("cuMemHostRegister_v2", host, 64, 0, 0);
	CHECK_OK(CU(cuIpcGetMemHandle, &handle, p));
	LINE("cuIpcGetMemHandle", 0, 0, p, 0);
	CHECK_OK(CU(cuMemcpyPeer, p, context, p + 128, context, 64));
	LINE("cuMemcpyPeer", p, 64, p + 128, 0);
	dsts[0] = p, dsts[1] = p + 100, srcs[0] = p + 200, srcs[1] = p + 300;
	CHECK_OK(CU(cuMemcpyBatchAsync_v2, dsts, srcs, sizes, 2, &attributes, &index, 1, s));
	LINE("cuMemcpyBatchAsync_v2", p, 100, p + 200, 2);
	CHECK_OK(CU(cuStreamWriteValue64_v2, s, p, 1ull << 33, 0));
	LINE("cuStreamWriteValue64_v2", p, 0, 0, 1ll << 33);
	CHECK_OK(CU(cuLaunchHostFunc, s, nothing, NULL));
	LINE("cuLaunchHostFunc", nothing, 0, 0, 0);
	ON("cuLaunchHostFunc", s);
	CHECK_OK(CU(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, 999));
	LINE("cuCtxSetLimit", 0, 999, 0, 2);
	CHECK_OK(CU(cuDevicePrimaryCtxRetain, &other, 1));
	CHECK_OK(CU(cuCtxEnablePeerAccess, other, 0));
	LINE("cuCtxEnablePeerAccess", other, 0, 0, 0);
}

/* ---- the programs every and torchrun ---- */

/* Runs a program from this program's directory. Returns the number that it prints after "done",
 * or -1 if there is none. */
static int run_program(const char *arguments)
{
	char path[512], command[640], line[256];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	CHECK(n > 0);
	path[n] = 0;
	*strrchr(path, '/') = 0;
	snprintf(command, sizeof(command), "'%s'/%s", path, arguments);
	FILE *out = popen(command, "r");
	CHECK(out && fgets(line, sizeof(line), out));
	int done = -1;
	CHECK(!strncmp(line, "done", 4));
	sscanf(line, "done %d", &done);
	CHECK(pclose(out) == 0);
	return done;
}

void test_every(void)
{
	int done = run_program("every"), n, of_parent = 0;
	struct line *lines = ledger_lines(&n);
	const char *child = lines[0].field[PID];
	/* The child ends first, so its lines come first. Count the lines of the parent's thread. */
	for (int i = 0; i < n; i++)
		of_parent += strcmp(lines[i].field[PID], child) != 0;
	if (of_parent != done)
		of_parent = n - of_parent;
	CHECK(of_parent == done && n > done);
	free(lines);
}

void test_torchrun(void)
{
	int n, of_first = 0;
	CHECK(run_program("torchrun --calls 300") == -1);
	struct line *lines = ledger_lines(&n);
	CHECK(n == 4 * 300);
	for (int i = 0; i < n; i++) {
		of_first += !strcmp(lines[i].field[PID], lines[0].field[PID]);
		CHECK(field_is(&lines[i], RESULT, "0"));
	}
	CHECK(of_first == 300);
	free(lines);
}

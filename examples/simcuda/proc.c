/* cuGetProcAddress: maps a plain name such as "cuMemAlloc" to the newest exported variant, here
 * cuMemAlloc_v2. It looks up exported names, so there is no table of all functions. The table
 * below has only names that were added or changed in some CUDA version. */
#include "sim.h"

#include "identity.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The CUDA version since which the plain name resolves to this function. For earlier versions it
 * resolves to an older function or to none. NEVER marks functions whose plain name still resolves
 * to the older function. */
enum { NEVER = 1 << 30 };
static const struct {
	const char *name;
	int version;
} since[] = {
	{"cuCtxCreate_v3", 11040},     {"cuCtxCreate_v4", 12050},     {"cuEventElapsedTime_v2", 12080},
	{"cuDeviceGetUuid_v2", 11040}, {"cuGetProcAddress_v2", 12000}, {"cuMemAllocAsync", 11020},
	{"cuMemFreeAsync", 11020},     {"cuLaunchKernelEx", 11080},   {"cuLibraryLoadData", 12000},
	{"cuLibraryUnload", 12000},    {"cuLibraryGetKernel", 12000}, {"cuKernelGetFunction", 12000},
	{"cuFuncGetName", 12030},
	{"cuCtxSynchronize_v2", NEVER}, {"cuCtxGetDevice_v2", NEVER}, {"cuMemAdvise_v2", 13000},
	{"cuMemPrefetchAsync_v2", 13000}, {"cuMemcpyBatchAsync", 12080}, {"cuMemcpyBatchAsync_v2", 13000},
	{"cuMemAllocFromPoolAsync", 11020}, {"cuMemPoolCreate", 11020}, {"cuMulticastCreate", 12010},
	{"cuStreamGetCaptureInfo_v2", 11030}, {"cuStreamGetCaptureInfo_v3", 13000}, {"cuStreamBeginCaptureToGraph", 12030},
	{"cuGraphAddKernelNode_v2", 12000}, {"cuGraphExecUpdate_v2", 12000}, {"cuGraphInstantiateWithParams", 12000},
	{"cuGraphAddMemAllocNode", 11040}, {"cuGraphAddMemFreeNode", 11040},
	{"cuStreamWaitValue32_v2", 11070}, {"cuStreamWaitValue64_v2", 11070}, {"cuStreamWriteValue32_v2", 11070},
	{"cuStreamWriteValue64_v2", 11070}, {"cuStreamBatchMemOp_v2", 11070},
	{"cuLibraryLoadFromFile", 12000}, {"cuLibraryGetModule", 12000}, {"cuLibraryGetKernelCount", 12040},
	{"cuLibraryEnumerateKernels", 12040}, {"cuKernelGetName", 12030}, {"cuModuleGetFunctionCount", 12040},
	{"cuModuleEnumerateFunctions", 12040}, {"cuGreenCtxCreate", 12040}, {"cuGreenCtxDestroy", 12040},
	{"cuGraphAddNode", 12020}, {"cuGraphAddNode_v2", 13000},
	{"cuGraphNodeSetParams", 12020}, {"cuGraphExecNodeSetParams", 12020}, {"cuGraphKernelNodeSetParams_v2", 12000},
	{"cuGraphExecKernelNodeSetParams_v2", 12000}, {"cuMemcpy3DBatchAsync", 12080}, {"cuMemcpy3DBatchAsync_v2", 13000},
	{"cuMemPrefetchBatchAsync", 13000}, {"cuMemDiscardBatchAsync", 13000}, {"cuMemDiscardAndPrefetchBatchAsync", 13000},
	{"cuMemBatchDecompressAsync", 12060}, {"cuMemGetDefaultMemPool", 13000}, {"cuMemGetMemPool", 13000},
	{"cuMemSetMemPool", 13000}, {"cuFuncLoad", 12040}, {"cuLibraryGetGlobal", 12000}, {"cuLibraryGetManaged", 12000},
	{"cuGreenCtxStreamCreate", 12050}, {"cuGreenCtxRecordEvent", 12040}, {"cuGreenCtxWaitEvent", 12040},
	{"cuCtxRecordEvent", 12050}, {"cuCtxWaitEvent", 12050}, {"cuCheckpointProcessLock", 12080},
	{"cuCheckpointProcessCheckpoint", 12080}, {"cuCheckpointProcessRestore", 12080}, {"cuCheckpointProcessUnlock", 12080},
	{"cuCtxFromGreenCtx", 12040}, {"cuDeviceGetDevResource", 12040}, {"cuDevResourceGenerateDesc", 12040},
};

static int version_of(const char *name)
{
	for (size_t i = 0; i < sizeof(since) / sizeof(*since); i++)
		if (!strcmp(since[i].name, name))
			return since[i].version;
	return 0;
}

static void *exported(const char *name)
{
	static void *self;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	Dl_info ours, theirs;
	if (!dladdr((void *)cuInit, &ours))
		return NULL;
	pthread_mutex_lock(&lock);
	if (!self)
		self = dlopen(ours.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	pthread_mutex_unlock(&lock);
	void *found = self ? dlsym(self, name) : NULL;
	/* dlsym also searches the dependencies of this library: reject their symbols. */
	if (!found || !dladdr(found, &theirs) || theirs.dli_fbase != ours.dli_fbase)
		return NULL;
	return found;
}

/* Returns true for names with a version suffix. The real driver accepts plain names only: for
 * "cuMemAlloc_v2" it returns NULL. */
static bool has_suffix(const char *symbol)
{
	const char *last = strrchr(symbol, '_');
	return last && (!strcmp(last, "_ptsz") || !strcmp(last, "_ptds") || (last[1] == 'v' && last[2] >= '0' && last[2] <= '9'));
}

static CUresult resolve(const char *symbol, void **out, int cuda_version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	static const char *versions[] = {"_v4", "_v3", "_v2", ""};
	static const char *threads[] = {"_ptsz", "_ptds", ""};
	bool too_new = false, plain = symbol && !has_suffix(symbol);
	if (!symbol || !out || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	/* The only plain name that was moved to a function with a different name. */
	if (!strcmp(symbol, "cuGraphInstantiate") && cuda_version >= 12000)
		symbol = "cuGraphInstantiateWithFlags";
	for (int v = 0; plain && v < 4 && !*out; v++) {
		char base[128], name[136];
		if (snprintf(base, sizeof(base), "%s%s", symbol, versions[v]) >= (int)sizeof(base))
			break;
		if (!exported(base))
			continue;
		if (version_of(base) > cuda_version) {
			too_new |= version_of(base) != NEVER;
			continue;
		}
		int first = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? 0 : 2;
		for (int t = first; t < 3 && !*out; t++) {
			snprintf(name, sizeof(name), "%s%s", base, threads[t]);
			*out = exported(name);
		}
	}
	CUdriverProcAddressQueryResult found = *out      ? CU_GET_PROC_ADDRESS_SUCCESS
					       : too_new ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
							 : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	if (status)
		*status = found;
	/* Also if the symbol is not found: driver 580 does the same, contrary to its manual. */
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
	BEGIN(cuGetProcAddress, NEEDS_NOTHING, .value = (int64_t)flags, .kernel = symbol);
	DO(resolve(symbol, pfn, cudaVersion, flags, NULL));
	if (!call.result)
		call.ptr = H(*pfn);
	return END();
}

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
				    CUdriverProcAddressQueryResult *symbolStatus)
{
	BEGIN(cuGetProcAddress_v2, NEEDS_NOTHING, .value = (int64_t)flags, .kernel = symbol);
	DO(resolve(symbol, pfn, cudaVersion, flags, symbolStatus));
	if (!call.result)
		call.ptr = H(*pfn);
	return END();
}

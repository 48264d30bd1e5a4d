/* A wrapper of NCCL for LD_PRELOAD, as profilers use it: it counts calls, and passes them to the second names. */
#include "nccl_sim.h"

#include <dlfcn.h>
#include <stdatomic.h>

#define EXPORTED __attribute__((visibility("default")))
#define NEXT(name) ((__typeof__(name) *)dlsym(RTLD_DEFAULT, #name))

static _Atomic int calls;

EXPORTED ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
	calls++;
	return NEXT(pncclCommInitRank)(comm, nranks, commId, rank);
}

EXPORTED ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
				    ncclComm_t comm, CUstream stream)
{
	calls++;
	return NEXT(pncclAllReduce)(sendbuff, recvbuff, count, datatype, op, comm, stream);
}

EXPORTED ncclResult_t ncclGroupStart(void)
{
	calls++;
	return NEXT(pncclGroupStart)();
}

EXPORTED ncclResult_t ncclGroupEnd(void)
{
	calls++;
	return NEXT(pncclGroupEnd)();
}

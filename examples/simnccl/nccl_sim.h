/* The part of NCCL's interface that simnccl has, with the names and types of NCCL 2.28.9. */
#ifndef NCCL_SIM_H
#define NCCL_SIM_H

#include "cuda_sim.h"

#include <stddef.h>
#include <stdint.h>

enum { CONFIG_MAGIC = 0xcafebeef };
enum { NCCL_UNIQUE_ID_BYTES = 128, NCCL_VERSION_CODE = 22809, NCCL_SPLIT_NOCOLOR = -1 };

typedef struct ncclComm *ncclComm_t;
typedef struct ncclWindow *ncclWindow_t;
typedef struct { char internal[NCCL_UNIQUE_ID_BYTES]; } ncclUniqueId;

typedef enum {
	ncclSuccess, ncclUnhandledCudaError, ncclSystemError, ncclInternalError, ncclInvalidArgument, ncclInvalidUsage,
	ncclRemoteError, ncclInProgress,
} ncclResult_t;

typedef enum {
	ncclInt8, ncclUint8, ncclInt32, ncclUint32, ncclInt64, ncclUint64, ncclFloat16, ncclFloat32, ncclFloat64, ncclBfloat16,
	ncclFloat8e4m3, ncclFloat8e5m2, ncclNumTypes,
} ncclDataType_t;

/* Values from ncclNumOps on are operators that the program created. */
typedef enum { ncclSum, ncclProd, ncclMax, ncclMin, ncclAvg, ncclNumOps, ncclMaxRedOp = 0x7fffffff } ncclRedOp_t;
typedef enum { ncclScalarDevice, ncclScalarHostImmediate } ncclScalarResidence_t;

typedef struct {
	size_t size;
	unsigned int magic, version;
	int blocking, cgaClusterSize, minCTAs, maxCTAs;
	const char *netName;
	int splitShare, trafficClass;
	const char *commName;
	int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs, nChannelsPerNetPeer, nvlinkCentricSched;
} ncclConfig_t;
_Static_assert(offsetof(ncclConfig_t, commName) == 48, "layout of NCCL 2.28");

typedef struct {
	size_t size;
	unsigned int magic, version;
	float estimatedTime;
} ncclSimInfo_t;

/* X(result, name, parameters) for each exported function. */
#define NCCL_FUNCTIONS(X)                                                                                                     \
	X(ncclResult_t, ncclMemAlloc, (void **ptr, size_t size))                                                              \
	X(ncclResult_t, ncclMemFree, (void *ptr))                                                                             \
	X(ncclResult_t, ncclGetVersion, (int *version))                                                                       \
	X(ncclResult_t, ncclGetUniqueId, (ncclUniqueId *uniqueId))                                                            \
	X(ncclResult_t, ncclCommInitRank, (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank))                      \
	X(ncclResult_t, ncclCommInitRankConfig, (ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,                 \
	  ncclConfig_t *config))                                                                                              \
	X(ncclResult_t, ncclCommInitRankScalable, (ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, \
	  ncclConfig_t *config))                                                                                              \
	X(ncclResult_t, ncclCommInitAll, (ncclComm_t *comm, int ndev, const int *devlist))                                    \
	X(ncclResult_t, ncclCommFinalize, (ncclComm_t comm))                                                                  \
	X(ncclResult_t, ncclCommDestroy, (ncclComm_t comm))                                                                   \
	X(ncclResult_t, ncclCommAbort, (ncclComm_t comm))                                                                     \
	X(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags))                                                   \
	X(ncclResult_t, ncclCommSplit, (ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config))      \
	X(ncclResult_t, ncclCommShrink, (ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,  \
	  ncclConfig_t *config, int shrinkFlags))                                                                             \
	X(const char *, ncclGetErrorString, (ncclResult_t result))                                                            \
	X(const char *, ncclGetLastError, (ncclComm_t comm))                                                                  \
	X(void, ncclResetDebugInit, (void))                                                                                   \
	X(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *asyncError))                                   \
	X(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int *count))                                                   \
	X(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int *device))                                               \
	X(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank))                                                 \
	X(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void *buff, size_t size, void **handle))                    \
	X(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle))                                            \
	X(ncclResult_t, ncclCommWindowRegister, (ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags))  \
	X(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win))                                        \
	X(ncclResult_t, ncclRedOpCreatePreMulSum, (ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,                    \
	  ncclScalarResidence_t residence, ncclComm_t comm))                                                                  \
	X(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm))                                                  \
	X(ncclResult_t, ncclReduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,             \
	  ncclRedOp_t op, int root, ncclComm_t comm, CUstream stream))                                                        \
	X(ncclResult_t, ncclBcast, (void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,             \
	  CUstream stream))                                                                                                   \
	X(ncclResult_t, ncclBroadcast, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, \
	  ncclComm_t comm, CUstream stream))                                                                                  \
	X(ncclResult_t, ncclAllReduce, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,          \
	  ncclRedOp_t op, ncclComm_t comm, CUstream stream))                                                                  \
	X(ncclResult_t, ncclReduceScatter, (const void *sendbuff, void *recvbuff, size_t recvcount, ncclDataType_t datatype,  \
	  ncclRedOp_t op, ncclComm_t comm, CUstream stream))                                                                  \
	X(ncclResult_t, ncclAllGather, (const void *sendbuff, void *recvbuff, size_t sendcount, ncclDataType_t datatype,      \
	  ncclComm_t comm, CUstream stream))                                                                                  \
	X(ncclResult_t, ncclAlltoAll, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype,           \
	  ncclComm_t comm, CUstream stream))                                                                                  \
	X(ncclResult_t, ncclGather, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,   \
	  ncclComm_t comm, CUstream stream))                                                                                  \
	X(ncclResult_t, ncclScatter, (const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root,  \
	  ncclComm_t comm, CUstream stream))                                                                                  \
	X(ncclResult_t, ncclSend, (const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,    \
	  CUstream stream))                                                                                                   \
	X(ncclResult_t, ncclRecv, (void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,          \
	  CUstream stream))                                                                                                   \
	X(ncclResult_t, ncclGroupStart, (void))                                                                               \
	X(ncclResult_t, ncclGroupEnd, (void))                                                                                 \
	X(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t *simInfo))

#define X(result, name, parameters)                                             \
	__attribute__((visibility("default"), weak)) result name parameters;    \
	__attribute__((visibility("default"))) result p##name parameters;
NCCL_FUNCTIONS(X)
#undef X

/* Not in NCCL: later operations of this process take factor times as long on the network. */
__attribute__((visibility("default"), weak)) void simncclNetwork(double factor);

#endif

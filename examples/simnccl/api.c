/*
 * The exported functions. Each function ncclX is weak, and pncclX is another name of the same
 * address, as in NCCL. Each call writes a line of the ledger, except ncclGroupStart and functions
 * that only ask.
 */
#include "sim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define PNCCL(name) __attribute__((alias(#name))) __typeof__(name) p##name;

const int type_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

/* Name of the outermost function of the library, which its line has: ncclBcast calls ncclBroadcast. */
static __thread const char *outermost;

static struct line line_of(const char *name, ncclComm_t handle)
{
	struct line l = {.name = outermost ? outermost : name, .handle = handle, .entry_ns = now_ns()};
	struct communicator *c = communicator_of(handle);
	l.group = group_number();
	if (c && !c->init.pending) {
		l.hash = c->hash;
		l.rank = c->rank;
		l.size = c->size;
	}
	return l;
}

static ncclResult_t end(struct line *l, ncclResult_t result)
{
	l->result = result;
	ledger_call(l);
	return result;
}

/* ---- the library and memory ---- */

ncclResult_t ncclGetVersion(int *version)
{
	if (!version)
		return ncclInvalidArgument;
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	static const char *const texts[] = {
		"no error", "unhandled cuda error", "unhandled system error", "internal error", "invalid argument", "invalid usage",
		"remote process exited or there was a network error", "NCCL operation in progress",
	};
	return (unsigned)result < sizeof(texts) / sizeof(*texts) ? texts[result] : "unknown result code";
}

const char *ncclGetLastError(ncclComm_t comm)
{
	(void)comm;
	return "";
}

void ncclResetDebugInit(void)
{
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size)
{
	struct line l = line_of("ncclMemAlloc", NULL);
	CUdeviceptr at = 0;
	int device;
	ncclResult_t result = ptr ? driver_ready(&device) : ncclInvalidArgument;
	if (!result && driver.cuMemAlloc_v2(&at, size))
		result = ncclUnhandledCudaError;
	if (!result)
		*ptr = (void *)(uintptr_t)at;
	return end(&l, result);
}

ncclResult_t ncclMemFree(void *ptr)
{
	struct line l = line_of("ncclMemFree", NULL);
	int device;
	ncclResult_t result = driver_ready(&device);
	if (!result && driver.cuMemFree_v2((CUdeviceptr)(uintptr_t)ptr))
		result = ncclUnhandledCudaError;
	return end(&l, result);
}

/* ---- communicators ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	struct line l = line_of("ncclGetUniqueId", NULL);
	uint64_t random;
	if (!id || getrandom(&random, sizeof(random), 0) != sizeof(random))
		return end(&l, ncclInvalidArgument);
	memset(id, 0, sizeof(*id));
	memcpy(id->internal, &random, sizeof(random));
	snprintf(id->internal + sizeof(random), NAME_BYTES, "%016llx", (unsigned long long)random);
	return end(&l, ncclSuccess);
}

/* Begins an init. Inside of a group, the outermost ncclGroupEnd waits for the other ranks. */
static ncclResult_t init(struct line *l, ncclComm_t *out, int size, const ncclUniqueId *id, int rank)
{
	char name[NAME_BYTES];
	if (!out || size < 1 || size > RANKS_MAX || rank < 0 || rank >= size)
		return ncclInvalidArgument;
	snprintf(name, sizeof(name), "%.*s", NAME_BYTES - 1, id->internal + sizeof(uint64_t));
	if (!name[0] || strchr(name, '/'))
		return ncclInvalidArgument;
	ncclResult_t result = communicator_join(out, name, hash_bytes(id, sizeof(*id)), rank, size);
	if (result)
		return result;
	struct communicator *c = communicator_of(*out);
	l->handle = *out;
	l->hash = c->hash;
	l->rank = c->rank;
	l->size = c->size;
	return group_add_init(c);
}

static void *ready_in_background(void *communicator)
{
	pthread_detach(pthread_self());
	communicator_ready(communicator);
	return NULL;
}

/* A config with NCCL's magic number and blocking = 0 lets a thread wait for the other ranks. */
static ncclResult_t init_by_config(struct line *l, ncclComm_t *out, int size, const ncclUniqueId *id, int rank, const ncclConfig_t *config)
{
	pthread_t thread;
	if (!config || config->magic != CONFIG_MAGIC || config->blocking || group_number())
		return init(l, out, size, id, rank);
	group_start();
	ncclResult_t result = init(l, out, size, id, rank);
	uint64_t group, operations;
	group_drop(&group, &operations);
	if (!result && pthread_create(&thread, NULL, ready_in_background, communicator_of(*out)))
		result = ncclSystemError;
	return result ? result : ncclInProgress;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank)
{
	struct line l = line_of("ncclCommInitRank", NULL);
	return end(&l, init(&l, comm, nranks, &commId, rank));
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t *config)
{
	struct line l = line_of("ncclCommInitRankConfig", NULL);
	return end(&l, init_by_config(&l, comm, nranks, &commId, rank, config));
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId, ncclUniqueId *commIds, ncclConfig_t *config)
{
	struct line l = line_of("ncclCommInitRankScalable", NULL);
	(void)config;
	return end(&l, nId < 1 || !commIds ? ncclInvalidArgument : init(&l, newcomm, nranks, commIds, myrank));
}

static ncclResult_t init_all(ncclComm_t *comm, int ndev)
{
	ncclUniqueId id;
	uint64_t group, operations;
	if (!comm || ndev < 1)
		return ncclInvalidArgument;
	ncclResult_t result = ncclGetUniqueId(&id);
	group_start();
	for (int i = 0; i < ndev && !result; i++) {
		struct line inner = {0};
		result = init(&inner, &comm[i], ndev, &id, i);
	}
	ncclResult_t ended = group_end(&group, &operations);
	return result ? result : ended;
}

ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist)
{
	struct line l = line_of("ncclCommInitAll", NULL);
	(void)devlist; /* all ranks use the current device */
	ncclResult_t result = init_all(comm, ndev);
	l.operations = (uint64_t)ndev;
	return end(&l, result);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm, ncclConfig_t *config)
{
	struct line l = line_of("ncclCommSplit", comm);
	struct communicator *c = communicator_of(comm);
	(void)config;
	if (!c || !newcomm || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
		return end(&l, ncclInvalidArgument);
	ncclResult_t result = communicator_split(c, color, key, newcomm, &c);
	return end(&l, result ? result : group_add_init(c));
}

static bool contains(const int *list, int n, int value)
{
	for (int i = 0; i < n; i++)
		if (list[i] == value)
			return true;
	return false;
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount, ncclComm_t *newcomm,
			    ncclConfig_t *config, int shrinkFlags)
{
	struct line l = line_of("ncclCommShrink", comm);
	struct communicator *c = communicator_of(comm);
	(void)config, (void)shrinkFlags;
	if (!c || !newcomm || contains(excludeRanksList, excludeRanksCount, c->rank))
		return end(&l, ncclInvalidArgument);
	ncclResult_t result = communicator_shrink(c, excludeRanksList, excludeRanksCount, newcomm, &c);
	return end(&l, result ? result : group_add_init(c));
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
	struct line l = line_of("ncclCommFinalize", comm);
	struct communicator *c = communicator_of(comm);
	if (c)
		communicator_drain(c);
	return end(&l, c ? ncclSuccess : ncclInvalidArgument);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	struct line l = line_of("ncclCommDestroy", comm);
	struct communicator *c = communicator_of(comm);
	if (!c)
		return end(&l, comm ? ncclInvalidArgument : ncclSuccess);
	communicator_drain(c);
	communicator_free(c);
	return end(&l, ncclSuccess);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
	struct line l = line_of("ncclCommAbort", comm);
	struct communicator *c = communicator_of(comm);
	if (!c)
		return end(&l, comm ? ncclInvalidArgument : ncclSuccess);
	c->aborted = 1;
	communicator_drain(c);
	communicator_free(c);
	return end(&l, ncclSuccess);
}

ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
	struct line l = line_of("ncclCommRevoke", comm);
	struct communicator *c = communicator_of(comm);
	if (c && !revokeFlags)
		c->aborted = 1;
	return end(&l, c && !revokeFlags ? ncclSuccess : ncclInvalidArgument);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
	if (!communicator_of(comm) || !asyncError)
		return ncclInvalidArgument;
	*asyncError = communicator_of(comm)->init.pending ? ncclInProgress : ncclSuccess;
	return ncclSuccess;
}

#define ASK(name, value)                                             \
	ncclResult_t name(const ncclComm_t comm, int *out)           \
	{                                                            \
		struct communicator *c = communicator_of(comm);      \
		if (!c || !out)                                      \
			return ncclInvalidArgument;                  \
		*out = c->value;                                     \
		return ncclSuccess;                                  \
	}
ASK(ncclCommCount, size)
ASK(ncclCommCuDevice, device)
ASK(ncclCommUserRank, rank)

/* ---- buffers and operators ---- */

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
	struct line l = line_of("ncclCommRegister", comm);
	if (!communicator_of(comm) || !buff || !size || !handle)
		return end(&l, ncclInvalidArgument);
	*handle = buff;
	return end(&l, ncclSuccess);
}

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle)
{
	struct line l = line_of("ncclCommDeregister", comm);
	return end(&l, communicator_of(comm) && handle ? ncclSuccess : ncclInvalidArgument);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win, int winFlags)
{
	struct line l = line_of("ncclCommWindowRegister", comm);
	(void)winFlags;
	if (!communicator_of(comm) || !buff || !size || !win)
		return end(&l, ncclInvalidArgument);
	*win = buff;
	return end(&l, ncclSuccess);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
	struct line l = line_of("ncclCommWindowDeregister", comm);
	return end(&l, communicator_of(comm) && win ? ncclSuccess : ncclInvalidArgument);
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
				      ncclComm_t comm)
{
	struct line l = line_of("ncclRedOpCreatePreMulSum", comm);
	struct communicator *c = communicator_of(comm);
	(void)datatype, (void)residence;
	if (!c || !op || !scalar)
		return end(&l, ncclInvalidArgument);
	*op = (ncclRedOp_t)(ncclNumOps + c->custom_operators++);
	return end(&l, ncclSuccess);
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
	struct line l = line_of("ncclRedOpDestroy", comm);
	return end(&l, communicator_of(comm) && op >= ncclNumOps ? ncclSuccess : ncclInvalidArgument);
}

/* ---- operations ---- */

static bool valid(const struct task *t)
{
	struct communicator *c = t->of;
	bool rooted = t->function == BROADCAST || t->function == REDUCE || t->function >= GATHER;
	return c && !c->init.pending && !c->aborted && (unsigned)t->type < ncclNumTypes && (!rooted || (t->root >= 0 && t->root < c->size)) &&
	       (!t->reduces || ((unsigned)t->op < (unsigned)(ncclNumOps + c->custom_operators)));
}

/* Numbers an operation. One with no elements, or on a communicator of one rank, has no number. */
static uint64_t number_of(struct communicator *c, const struct task *t)
{
	if (!t->count || c->size == 1)
		return 0;
	switch (t->function) {
	case SEND: return ++c->sent[t->root];
	case RECV: return ++c->received[t->root];
	default: return ++c->collectives;
	}
}

static ncclResult_t operate(const char *name, ncclComm_t comm, struct task t)
{
	struct line l = line_of(name, comm);
	t.of = communicator_of(comm);
	if (!t.reduces)
		t.op = ncclNumOps;
	l.task = &t;
	if (!valid(&t)) {
		t.type = (unsigned)t.type < ncclNumTypes ? t.type : ncclInt8;
		return end(&l, ncclInvalidArgument);
	}
	l.number = t.number = number_of(t.of, &t);
	l.id = t.id = ledger_next_id();
	return end(&l, t.count ? group_add_task(&t) : ncclSuccess);
}

#define OPERATE(name, ...) return operate(#name, comm, (struct task){.count = count, .type = datatype, .stream = stream, __VA_ARGS__})

ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
			   ncclComm_t comm, CUstream stream)
{
	OPERATE(ncclAllReduce, .function = ALL_REDUCE, .send = sendbuff, .receive = recvbuff, .reduces = true, .op = op, .root = -1);
}

ncclResult_t ncclReduceScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
			       ncclComm_t comm, CUstream stream)
{
	OPERATE(ncclReduceScatter, .function = REDUCE_SCATTER, .send = sendbuff, .receive = recvbuff, .reduces = true, .op = op, .root = -1);
}

ncclResult_t ncclReduce(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
			ncclComm_t comm, CUstream stream)
{
	OPERATE(ncclReduce, .function = REDUCE, .send = sendbuff, .receive = recvbuff, .reduces = true, .op = op, .root = root);
}

ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
			   CUstream stream)
{
	OPERATE(ncclBroadcast, .function = BROADCAST, .send = sendbuff, .receive = recvbuff, .root = root);
}

ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, CUstream stream)
{
	outermost = "ncclBcast";
	ncclResult_t result = ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
	outermost = NULL;
	return result;
}

ncclResult_t ncclAllGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
			   CUstream stream)
{
	OPERATE(ncclAllGather, .function = ALL_GATHER, .send = sendbuff, .receive = recvbuff, .root = -1);
}

ncclResult_t ncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
			  CUstream stream)
{
	OPERATE(ncclAlltoAll, .function = ALL_TO_ALL, .send = sendbuff, .receive = recvbuff, .root = -1);
}

ncclResult_t ncclGather(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
			CUstream stream)
{
	OPERATE(ncclGather, .function = GATHER, .send = sendbuff, .receive = recvbuff, .root = root);
}

ncclResult_t ncclScatter(const void *sendbuff, void *recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
			 CUstream stream)
{
	OPERATE(ncclScatter, .function = SCATTER, .send = sendbuff, .receive = recvbuff, .root = root);
}

ncclResult_t ncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, CUstream stream)
{
	OPERATE(ncclSend, .function = SEND, .send = sendbuff, .root = peer);
}

ncclResult_t ncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, CUstream stream)
{
	OPERATE(ncclRecv, .function = RECV, .receive = recvbuff, .root = peer);
}

/* ---- groups ---- */

ncclResult_t ncclGroupStart(void)
{
	return group_start();
}

ncclResult_t ncclGroupEnd(void)
{
	struct line l = line_of("ncclGroupEnd", NULL);
	bool outer = group_is_outermost();
	ncclResult_t result = group_end(&l.group, &l.operations);
	if (!outer) /* inner groups have no line */
		return result;
	return end(&l, result);
}

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
	struct line l = line_of("ncclGroupSimulateEnd", NULL);
	ncclResult_t result = group_drop(&l.group, &l.operations);
	if (simInfo)
		simInfo->estimatedTime = 0;
	return end(&l, result);
}

void simncclNetwork(double factor)
{
	plan_network(factor);
}

#define X(result, name, parameters) PNCCL(name)
NCCL_FUNCTIONS(X)
#undef X

/* Copies and memory sets in every shape and variant. */
#include "every.h"

#define HOST(offset) (every.host + (offset))
#define HOST_AS_DEVICE(offset) ((CUdeviceptr)(uintptr_t)HOST(offset))

static void rows(void)
{
	CUstream *s = every.streams;
	OK(cuMemcpy, every.buffer_a + 1, HOST_AS_DEVICE(2), unique_bytes());
	OK_AS(cuMemcpy_ptds, cuMemcpy, HOST_AS_DEVICE(3), every.buffer_a + 4, unique_bytes());
	OK(cuMemcpyHtoD_v2, every.buffer_a + 5, HOST(6), unique_bytes());
	OK_AS(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2, every.buffer_a + 7, HOST(8), unique_bytes());
	OK(cuMemcpyDtoH_v2, HOST(9), every.buffer_a + 10, unique_bytes());
	OK_AS(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2, HOST(11), every.buffer_a + 12, unique_bytes());
	OK(cuMemcpyDtoD_v2, every.buffer_b + 13, every.buffer_a + 14, unique_bytes());
	OK_AS(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2, every.buffer_b + 15, every.buffer_a + 16, unique_bytes());
	OK(cuMemcpyAsync, every.buffer_b + 17, HOST_AS_DEVICE(18), unique_bytes(), s[0]);
	OK_AS(cuMemcpyAsync_ptsz, cuMemcpyAsync, every.buffer_b + 19, HOST_AS_DEVICE(20), unique_bytes(), NULL);
	OK(cuMemcpyHtoDAsync_v2, every.buffer_a + 21, HOST(22), unique_bytes(), s[1]);
	OK_AS(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2, every.buffer_a + 23, HOST(24), unique_bytes(), NULL);
	OK(cuMemcpyDtoHAsync_v2, HOST(25), every.buffer_a + 26, unique_bytes(), s[2]);
	OK_AS(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2, HOST(27), every.buffer_a + 28, unique_bytes(), CU_STREAM_PER_THREAD);
	OK(cuMemcpyDtoDAsync_v2, every.buffer_b + 29, every.buffer_a + 30, unique_bytes(), s[3]);
	OK_AS(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2, every.buffer_b + 31, every.buffer_a + 32, unique_bytes(), CU_STREAM_LEGACY);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy, every.buffer_a, 0, unique_bytes());
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyHtoD_v2, 0xdead000, HOST(0), unique_bytes());
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoH_v2, NULL, every.buffer_a, unique_bytes());
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpyDtoDAsync_v2, every.buffer_b, every.buffer_a, unique_bytes(), BAD_HANDLE(CUstream));

	OK(cuMemcpyPeer, every.buffer_b + 33, every.other_context, every.buffer_a + 34, every.context, unique_bytes());
	OK_AS(cuMemcpyPeer_ptds, cuMemcpyPeer, every.buffer_b + 35, every.other_context, every.buffer_a + 36, every.context, unique_bytes());
	OK(cuMemcpyPeerAsync, every.buffer_b + 37, every.context, every.buffer_a + 38, every.other_context, unique_bytes(), s[0]);
	OK_AS(cuMemcpyPeerAsync_ptsz, cuMemcpyPeerAsync, every.buffer_b + 39, every.context, every.buffer_a + 40, every.context, unique_bytes(),
	      s[1]);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpyPeer, every.buffer_b, BAD_HANDLE(CUcontext), every.buffer_a, every.context, unique_bytes());
}

static void with_arrays(void)
{
	CUarray a = every.array;
	CUstream *s = every.streams;
	OK(cuMemcpyHtoA_v2, a, 4, HOST(41), 1004);
	OK_AS(cuMemcpyHtoA_v2_ptds, cuMemcpyHtoA_v2, a, 8, HOST(42), 1008);
	OK(cuMemcpyDtoA_v2, a, 12, every.buffer_a + 43, 1012);
	OK_AS(cuMemcpyDtoA_v2_ptds, cuMemcpyDtoA_v2, a, 16, every.buffer_a + 44, 1016);
	OK(cuMemcpyAtoH_v2, HOST(45), a, 20, 1020);
	OK_AS(cuMemcpyAtoH_v2_ptds, cuMemcpyAtoH_v2, HOST(46), a, 24, 1024);
	OK(cuMemcpyAtoD_v2, every.buffer_b + 47, a, 28, 1028);
	OK_AS(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD_v2, every.buffer_b + 48, a, 32, 1032);
	OK(cuMemcpyAtoA_v2, a, 36, a, 40, 1036);
	OK_AS(cuMemcpyAtoA_v2_ptds, cuMemcpyAtoA_v2, a, 44, a, 48, 1040);
	OK(cuMemcpyHtoAAsync_v2, a, 52, HOST(49), 1044, s[0]);
	OK_AS(cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoAAsync_v2, a, 56, HOST(50), 1048, s[1]);
	OK(cuMemcpyAtoHAsync_v2, HOST(51), a, 60, 1052, s[2]);
	OK_AS(cuMemcpyAtoHAsync_v2_ptsz, cuMemcpyAtoHAsync_v2, HOST(52), a, 64, 1056, s[3]);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuMemcpyHtoA_v2, BAD_HANDLE(CUarray), 0, HOST(0), 1060);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyAtoD_v2, every.buffer_b, a, 0, HUGE_BYTES);
}

static CUDA_MEMCPY2D flat(void)
{
	unsigned int n = unique_number() % 100;
	return (CUDA_MEMCPY2D){
		.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = HOST(4 * n), .srcPitch = 1024,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = every.buffer_a + 8 * n, .dstPitch = 2048,
		.WidthInBytes = 300 + n, .Height = 3 + n,
	};
}

static CUDA_MEMCPY3D deep(void)
{
	unsigned int n = unique_number() % 100;
	return (CUDA_MEMCPY3D){
		.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = every.buffer_a + 4 * n, .srcPitch = 512, .srcHeight = 128,
		.srcContext = every.context, .dstContext = every.other_context,
		.dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = every.buffer_b + 8 * n, .dstPitch = 1024, .dstHeight = 128,
		.WidthInBytes = 200 + n, .Height = 5 + n, .Depth = 2 + n % 3,
	};
}

#define SHAPED(suffix, fn, make)                    \
	do {                                        \
		__typeof__(make()) c_ = make();     \
		OK(fn, &c_);                        \
		c_ = make();                        \
		OK_AS(fn##suffix, fn, &c_);         \
	} while (0)
#define SHAPED_ASYNC(suffix, fn, make, first, second)       \
	do {                                                \
		__typeof__(make()) c_ = make();             \
		OK(fn, &c_, first);                         \
		c_ = make();                                \
		OK_AS(fn##suffix, fn, &c_, second);         \
	} while (0)

static void shapes(void)
{
	CUstream *s = every.streams;
	SHAPED(_ptds, cuMemcpy2D_v2, flat);
	SHAPED(_ptds, cuMemcpy2DUnaligned_v2, flat);
	SHAPED_ASYNC(_ptsz, cuMemcpy2DAsync_v2, flat, s[0], s[1]);
	SHAPED(_ptds, cuMemcpy3D_v2, deep);
	SHAPED_ASYNC(_ptsz, cuMemcpy3DAsync_v2, deep, s[2], s[3]);
	SHAPED(_ptds, cuMemcpy3DPeer, deep);
	SHAPED_ASYNC(_ptsz, cuMemcpy3DPeerAsync, deep, s[1], NULL);

	/* Every memory type as source and destination. */
	CUDA_MEMCPY2D c = flat();
	c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	c.dstArray = every.array;
	c.WidthInBytes = 444;
	c.Height = 11;
	OK(cuMemcpy2D_v2, &c);
	c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	c.srcArray = every.array;
	c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	c.dstDevice = HOST_AS_DEVICE(4096);
	c.dstPitch = 4096;
	c.Height = 12;
	OK(cuMemcpy2DAsync_v2, &c, s[0]);
	CUDA_MEMCPY3D d = deep();
	d.dstMemoryType = CU_MEMORYTYPE_HOST;
	d.dstHost = HOST(0);
	d.Depth = 2;
	OK(cuMemcpy3D_v2, &d);

	c = flat();
	c.dstPitch = 1;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2, &c);
	d = deep();
	d.srcDevice = 0xdead000;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DAsync_v2, &d, s[1]);
	d = deep();
	d.srcContext = NULL;
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemcpy3DPeer, &d);
}

static void batches(void)
{
	CUdeviceptr dsts[5], srcs[5];
	size_t sizes[5], index = 0, fail = 0;
	CUmemcpyAttributes attributes = {.srcAccessOrder = 1};
	CUstream *s = every.streams;
#define BATCH(n) dsts, srcs, sizes, n, &attributes, &index, 1
	for (int call = 0; call < 5; call++) {
		for (int i = 0; i < 5; i++) {
			dsts[i] = every.buffer_b + 8192 * (unsigned)i + 16 * (unsigned)call;
			srcs[i] = every.buffer_a + 8192 * (unsigned)i + 32 * (unsigned)call;
			sizes[i] = unique_bytes();
		}
		switch (call) {
		case 0: OK(cuMemcpyBatchAsync, BATCH(2), &fail, s[0]); break;
		case 1: OK_AS(cuMemcpyBatchAsync_ptsz, cuMemcpyBatchAsync, BATCH(3), &fail, s[1]); break;
		case 2: OK(cuMemcpyBatchAsync_v2, BATCH(4), s[2]); break;
		case 3: OK_AS(cuMemcpyBatchAsync_v2_ptsz, cuMemcpyBatchAsync_v2, BATCH(5), s[3]); break;
		case 4: FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpyBatchAsync, BATCH(1), &fail, NULL); break;
		}
	}
}

static CUmemcpy3DOperand at(CUdeviceptr address)
{
	return (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .op.ptr = {.ptr = address, .rowLength = 512, .layerHeight = 16}};
}

static void batches_3d(void)
{
	/* The recorder sums the bytes of at most this many copies of a batch. */
	enum { BATCH_COPIES = 384 };
	static CUDA_MEMCPY3D_BATCH_OP list[BATCH_COPIES];
	CUstream *s = every.streams;
	size_t fail = 0;
	for (unsigned int i = 0; i < BATCH_COPIES; i++) {
		list[i].src = at(every.buffer_a + 128 * i);
		list[i].dst = at(every.buffer_b + 256 * i);
		list[i].extent.width = 50 + i;
		list[i].extent.height = 1 + i % 7;
		list[i].extent.depth = 1 + i % 3;
	}
	OK(cuMemcpy3DBatchAsync, 1, list + 3, &fail, 0, s[0]);
	OK_AS(cuMemcpy3DBatchAsync_ptsz, cuMemcpy3DBatchAsync, 24, list, &fail, 0, s[1]);
	OK(cuMemcpy3DBatchAsync_v2, BATCH_COPIES, list, 0, s[2]);
	OK_AS(cuMemcpy3DBatchAsync_v2_ptsz, cuMemcpy3DBatchAsync_v2, 25, list + 1, 0, s[3]);
	list[30].dst = (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_ARRAY, .op.array = {.array = every.array}};
	OK(cuMemcpy3DBatchAsync_v2, 31, list, 0, s[0]);
	list[2].extent.width = 0;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy3DBatchAsync_v2, 3, list, 0, s[1]);
}

void every_copy(void)
{
	rows();
	with_arrays();
	shapes();
	batches();
	batches_3d();
}

#define HERE (every.buffer_a + 64 * unique_number())
#define VALUE (unique_number() & 0xff)
#define SETS(bits)                                                                                                     \
	do {                                                                                                           \
		OK(cuMemsetD##bits##_v2, HERE, VALUE, unique_bytes());                                                   \
		OK_AS(cuMemsetD##bits##_v2_ptds, cuMemsetD##bits##_v2, HERE, VALUE, unique_bytes());                     \
		OK(cuMemsetD##bits##Async, HERE, VALUE, unique_bytes(), every.streams[0]);                               \
		OK_AS(cuMemsetD##bits##Async_ptsz, cuMemsetD##bits##Async, HERE, VALUE, unique_bytes(), NULL);           \
		OK(cuMemsetD2D##bits##_v2, HERE, 4096, VALUE, unique_number() % 500 + 1, 3);                             \
		OK_AS(cuMemsetD2D##bits##_v2_ptds, cuMemsetD2D##bits##_v2, HERE, 4096, VALUE, unique_number() % 500 + 1, 4); \
		OK(cuMemsetD2D##bits##Async, HERE, 4096, VALUE, unique_number() % 500 + 1, 5, every.streams[1]);         \
		OK_AS(cuMemsetD2D##bits##Async_ptsz, cuMemsetD2D##bits##Async, HERE, 4096, VALUE, unique_number() % 500 + 1, 6, \
		      every.streams[2]);                                                                               \
		FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD##bits##_v2, 0xdead000, VALUE, unique_bytes());                 \
		FAILS(CUDA_ERROR_INVALID_VALUE, cuMemsetD2D##bits##Async, HERE, 1, VALUE, 600, 7, every.streams[3]);   \
	} while (0)

void every_set(void)
{
	SETS(8);
	SETS(16);
	SETS(32);
}

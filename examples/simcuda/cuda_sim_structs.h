/* Structures that the driver API takes by pointer or by value. Probes read fields of many of
 * them, so their layouts are those of the public cuda.h (11.4 to 13.0). LAYOUT checks the
 * offsets that probes read. */
#ifndef CUDA_SIM_STRUCTS_H
#define CUDA_SIM_STRUCTS_H

#include <stddef.h>
#include <stdint.h>

#define LAYOUT(condition) _Static_assert(condition, "probes read the fields at these offsets")

enum { CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
typedef struct CUlaunchAttribute_st {
	int id;
	union {
		char pad[64];
		int programmaticStreamSerializationAllowed;
		struct { unsigned int x, y, z; } clusterDim;
	} value __attribute__((aligned(8)));
} CUlaunchAttribute;
LAYOUT(offsetof(CUlaunchAttribute, value) == 8 && sizeof(CUlaunchAttribute) == 72);

typedef struct CUlaunchConfig_st {
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	CUlaunchAttribute *attrs;
	unsigned int numAttrs;
} CUlaunchConfig;
LAYOUT(offsetof(CUlaunchConfig, hStream) == 32 && offsetof(CUlaunchConfig, attrs) == 40 && offsetof(CUlaunchConfig, numAttrs) == 48);

/* ---- memory ---- */

typedef enum {
	CU_MEM_LOCATION_TYPE_INVALID = 0,
	CU_MEM_LOCATION_TYPE_DEVICE = 1,
	CU_MEM_LOCATION_TYPE_HOST = 2,
	CU_MEM_LOCATION_TYPE_HOST_NUMA = 3,
} CUmemLocationType;
typedef struct { CUmemLocationType type; int id; } CUmemLocation;

enum { CU_MEM_ALLOCATION_TYPE_PINNED = 1 };
enum { CU_MEM_HANDLE_TYPE_NONE = 0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1 };
typedef int CUmemAllocationType, CUmemAllocationHandleType;

typedef struct {
	CUmemAllocationType type;
	CUmemAllocationHandleType requestedHandleTypes;
	CUmemLocation location;
	void *win32HandleMetaData;
	struct {
		unsigned char compressionType, gpuDirectRDMACapable;
		unsigned short usage;
		unsigned char reserved[4];
	} allocFlags;
} CUmemAllocationProp;
LAYOUT(offsetof(CUmemAllocationProp, location) == 8 && offsetof(CUmemAllocationProp, allocFlags) == 24 &&
       sizeof(CUmemAllocationProp) == 32);

enum { CU_MEM_ACCESS_FLAGS_PROT_NONE = 0, CU_MEM_ACCESS_FLAGS_PROT_READ = 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;

typedef struct {
	CUmemAllocationType allocType;
	CUmemAllocationHandleType handleTypes;
	CUmemLocation location;
	void *win32SecurityAttributes;
	size_t maxSize;
	unsigned short usage;
	unsigned char reserved[54];
} CUmemPoolProps;
LAYOUT(offsetof(CUmemPoolProps, location) == 8 && offsetof(CUmemPoolProps, maxSize) == 24 && sizeof(CUmemPoolProps) == 88);

typedef enum {
	CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES = 1,
	CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC = 2,
	CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES = 3,
	CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
	CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT = 5,
	CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH = 6,
	CU_MEMPOOL_ATTR_USED_MEM_CURRENT = 7,
	CU_MEMPOOL_ATTR_USED_MEM_HIGH = 8,
} CUmemPool_attribute;

typedef struct {
	unsigned int numDevices;
	size_t size;
	unsigned long long handleTypes, flags;
} CUmulticastObjectProp;
LAYOUT(offsetof(CUmulticastObjectProp, size) == 8 && sizeof(CUmulticastObjectProp) == 32);

/* 64 bytes: passed by value, an IPC handle is copied to the stack and takes no register. */
typedef struct { char reserved[64]; } CUipcMemHandle, CUipcEventHandle;
typedef struct { unsigned char reserved[64]; } CUmemPoolPtrExportData;

enum { CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD = 1 };
typedef struct {
	int type;
	union {
		int fd;
		struct { void *handle; const void *name; } win32;
		const void *nvSciBufObject;
	} handle;
	unsigned long long size;
	unsigned int flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_HANDLE_DESC;
LAYOUT(offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, handle) == 8 && offsetof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC, size) == 24 &&
       sizeof(CUDA_EXTERNAL_MEMORY_HANDLE_DESC) == 104);

typedef struct {
	unsigned long long offset, size;
	unsigned int flags, reserved[16];
} CUDA_EXTERNAL_MEMORY_BUFFER_DESC;
LAYOUT(offsetof(CUDA_EXTERNAL_MEMORY_BUFFER_DESC, size) == 8);

typedef enum {
	CU_AD_FORMAT_UNSIGNED_INT8 = 0x01,
	CU_AD_FORMAT_UNSIGNED_INT16 = 0x02,
	CU_AD_FORMAT_UNSIGNED_INT32 = 0x03,
	CU_AD_FORMAT_SIGNED_INT8 = 0x08,
	CU_AD_FORMAT_SIGNED_INT16 = 0x09,
	CU_AD_FORMAT_SIGNED_INT32 = 0x0a,
	CU_AD_FORMAT_HALF = 0x10,
	CU_AD_FORMAT_FLOAT = 0x20,
} CUarray_format;

typedef struct {
	size_t Width, Height;
	CUarray_format Format;
	unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;
LAYOUT(offsetof(CUDA_ARRAY_DESCRIPTOR, Format) == 16 && offsetof(CUDA_ARRAY_DESCRIPTOR, NumChannels) == 20);

typedef struct {
	size_t Width, Height, Depth;
	CUarray_format Format;
	unsigned int NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;
LAYOUT(offsetof(CUDA_ARRAY3D_DESCRIPTOR, Format) == 24 && offsetof(CUDA_ARRAY3D_DESCRIPTOR, NumChannels) == 28);

typedef struct {
	unsigned long long offset;
	CUDA_ARRAY3D_DESCRIPTOR arrayDesc;
	unsigned int numLevels, reserved[16];
} CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC;

typedef struct {
	int resourceType;
	union { CUmipmappedArray mipmap; CUarray array; } resource;
	int subresourceType;
	union {
		struct { unsigned int level, layer, offsetX, offsetY, offsetZ, extentWidth, extentHeight, extentDepth; } sparseLevel;
		struct { unsigned int layer; unsigned long long offset, size; } miptail;
	} subresource;
	int memOperationType, memHandleType;
	CUmemGenericAllocationHandle memHandle;
	unsigned long long offset;
	unsigned int deviceBitMask, flags, reserved[2];
} CUarrayMapInfo;
LAYOUT(offsetof(CUarrayMapInfo, resource) == 8 && offsetof(CUarrayMapInfo, memHandle) == 64 && sizeof(CUarrayMapInfo) == 96);

typedef unsigned long long CUtexObject, CUsurfObject;
typedef enum {
	CU_RESOURCE_TYPE_ARRAY = 0,
	CU_RESOURCE_TYPE_MIPMAPPED_ARRAY = 1,
	CU_RESOURCE_TYPE_LINEAR = 2,
} CUresourcetype;
typedef struct CUDA_RESOURCE_DESC_st {
	CUresourcetype resType;
	union {
		struct { CUarray hArray; } array;
		struct { CUmipmappedArray hMipmappedArray; } mipmap;
		struct { CUdeviceptr devPtr; CUarray_format format; unsigned int numChannels; size_t sizeInBytes; } linear;
		int reserved[32];
	} res;
	unsigned int flags;
} CUDA_RESOURCE_DESC;
LAYOUT(offsetof(CUDA_RESOURCE_DESC, res) == 8 && sizeof(CUDA_RESOURCE_DESC) == 144);
typedef struct { int pad[26]; } CUDA_TEXTURE_DESC;
typedef struct CUDA_RESOURCE_VIEW_DESC_st CUDA_RESOURCE_VIEW_DESC;

typedef struct {
	size_t srcNumBytes, dstNumBytes;
	uint32_t *dstActBytes;
	const void *src;
	void *dst;
	int algo;
	unsigned char padding[20];
} CUmemDecompressParams;
LAYOUT(offsetof(CUmemDecompressParams, src) == 24 && offsetof(CUmemDecompressParams, dst) == 32 &&
       sizeof(CUmemDecompressParams) == 64);

/* ---- copies ---- */

typedef enum {
	CU_MEMORYTYPE_HOST = 1,
	CU_MEMORYTYPE_DEVICE = 2,
	CU_MEMORYTYPE_ARRAY = 3,
	CU_MEMORYTYPE_UNIFIED = 4,
} CUmemorytype;

typedef struct {
	size_t srcXInBytes, srcY;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	size_t srcPitch;
	size_t dstXInBytes, dstY;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	size_t dstPitch;
	size_t WidthInBytes, Height;
} CUDA_MEMCPY2D;
LAYOUT(offsetof(CUDA_MEMCPY2D, srcDevice) == 32 && offsetof(CUDA_MEMCPY2D, dstMemoryType) == 72 &&
       offsetof(CUDA_MEMCPY2D, WidthInBytes) == 112 && sizeof(CUDA_MEMCPY2D) == 128);

/* Parameters of a 3D copy. Bytes that are contexts in CUDA_MEMCPY3D_PEER are reserved in
 * CUDA_MEMCPY3D. */
typedef struct {
	size_t srcXInBytes, srcY, srcZ, srcLOD;
	CUmemorytype srcMemoryType;
	const void *srcHost;
	CUdeviceptr srcDevice;
	CUarray srcArray;
	CUcontext srcContext;
	size_t srcPitch, srcHeight;
	size_t dstXInBytes, dstY, dstZ, dstLOD;
	CUmemorytype dstMemoryType;
	void *dstHost;
	CUdeviceptr dstDevice;
	CUarray dstArray;
	CUcontext dstContext;
	size_t dstPitch, dstHeight;
	size_t WidthInBytes, Height, Depth;
} CUDA_MEMCPY3D_PEER;
typedef CUDA_MEMCPY3D_PEER CUDA_MEMCPY3D;
LAYOUT(offsetof(CUDA_MEMCPY3D, srcDevice) == 48 && offsetof(CUDA_MEMCPY3D, srcContext) == 64 &&
       offsetof(CUDA_MEMCPY3D, dstMemoryType) == 120 && offsetof(CUDA_MEMCPY3D, dstContext) == 152 &&
       offsetof(CUDA_MEMCPY3D, WidthInBytes) == 176 && sizeof(CUDA_MEMCPY3D) == 200);

typedef struct {
	int srcAccessOrder;
	CUmemLocation srcLocHint, dstLocHint;
	unsigned int flags;
} CUmemcpyAttributes;

enum { CU_MEMCPY_OPERAND_TYPE_POINTER = 1, CU_MEMCPY_OPERAND_TYPE_ARRAY = 2 };
typedef struct {
	int type;
	union {
		struct { CUdeviceptr ptr; size_t rowLength, layerHeight; CUmemLocation locHint; } ptr;
		struct { CUarray array; struct { size_t x, y, z; } offset; } array;
	} op;
} CUmemcpy3DOperand;

typedef struct {
	CUmemcpy3DOperand src, dst;
	struct { size_t width, height, depth; } extent;
	int srcAccessOrder;
	unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;
LAYOUT(offsetof(CUDA_MEMCPY3D_BATCH_OP, dst) == 40 && offsetof(CUDA_MEMCPY3D_BATCH_OP, extent) == 80 &&
       sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112);

/* ---- external semaphores (of other APIs) ---- */

enum { CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD = 1 };
typedef struct {
	int type;
	union {
		int fd;
		struct { void *handle; const void *name; } win32;
		const void *nvSciSyncObj;
	} handle;
	unsigned int flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;

/* Parameters of external semaphore signals and waits. Opaque, because simcuda does not read
 * them. */
typedef struct { unsigned char opaque[144]; } CUDA_EXTERNAL_SEMAPHORE_PARAMS;

/* ---- streams and graphs ---- */

typedef struct {
	CUfunction function;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	CUstream hStream;
	void **kernelParams;
} CUDA_LAUNCH_PARAMS;
LAYOUT(offsetof(CUDA_LAUNCH_PARAMS, sharedMemBytes) == 32 && offsetof(CUDA_LAUNCH_PARAMS, hStream) == 40 &&
       sizeof(CUDA_LAUNCH_PARAMS) == 56);

typedef enum {
	CU_STREAM_MEM_OP_WAIT_VALUE_32 = 1,
	CU_STREAM_MEM_OP_WRITE_VALUE_32 = 2,
	CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES = 3,
	CU_STREAM_MEM_OP_WAIT_VALUE_64 = 4,
	CU_STREAM_MEM_OP_WRITE_VALUE_64 = 5,
	CU_STREAM_MEM_OP_BARRIER = 6,
} CUstreamBatchMemOpType;

typedef union {
	CUstreamBatchMemOpType operation;
	struct {
		CUstreamBatchMemOpType operation;
		CUdeviceptr address;
		uint64_t value;
		unsigned int flags;
		CUdeviceptr alias;
	} value; /* of waits and writes; 32-bit operations use the lower half */
	uint64_t pad[6];
} CUstreamBatchMemOpParams;
LAYOUT(sizeof(CUstreamBatchMemOpParams) == 48);

typedef enum {
	CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	CU_STREAM_CAPTURE_MODE_RELAXED = 2,
} CUstreamCaptureMode;
typedef enum {
	CU_STREAM_CAPTURE_STATUS_NONE = 0,
	CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
	CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
} CUstreamCaptureStatus;

typedef struct { unsigned char from_port, to_port, type, reserved[5]; } CUgraphEdgeData;

typedef struct {
	CUfunction func;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	void **kernelParams, **extra;
	CUkernel kern;
	CUcontext ctx;
} CUDA_KERNEL_NODE_PARAMS;
LAYOUT(offsetof(CUDA_KERNEL_NODE_PARAMS, sharedMemBytes) == 32 && offsetof(CUDA_KERNEL_NODE_PARAMS, kern) == 56);

typedef struct {
	CUfunction func;
	unsigned int gridDimX, gridDimY, gridDimZ;
	unsigned int blockDimX, blockDimY, blockDimZ;
	unsigned int sharedMemBytes;
	void **kernelParams, **extra;
} CUDA_KERNEL_NODE_PARAMS_v1;
LAYOUT(sizeof(CUDA_KERNEL_NODE_PARAMS_v1) == 56);

typedef struct {
	CUdeviceptr dst;
	size_t pitch;
	unsigned int value, elementSize;
	size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct {
	CUmemPoolProps poolProps;
	const CUmemAccessDesc *accessDescs;
	size_t accessDescCount, bytesize;
	CUdeviceptr dptr; /* set by the driver: the node's memory */
} CUDA_MEM_ALLOC_NODE_PARAMS;
LAYOUT(offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, bytesize) == 104 && offsetof(CUDA_MEM_ALLOC_NODE_PARAMS, dptr) == 112);

typedef struct {
	void (*fn)(void *userData);
	void *userData;
} CUDA_HOST_NODE_PARAMS;

/* Parameters of batch memory operation and external semaphore nodes. simcuda does not read them. */
typedef struct { CUcontext ctx; unsigned int count; void *paramArray; unsigned int flags; } CUDA_BATCH_MEM_OP_NODE_PARAMS;
typedef struct { void *extSemArray; const void *paramsArray; unsigned int numExtSems; } CUDA_EXT_SEM_NODE_PARAMS;

typedef enum {
	CU_GRAPH_NODE_TYPE_KERNEL = 0,
	CU_GRAPH_NODE_TYPE_MEMCPY = 1,
	CU_GRAPH_NODE_TYPE_MEMSET = 2,
	CU_GRAPH_NODE_TYPE_HOST = 3,
	CU_GRAPH_NODE_TYPE_GRAPH = 4,
	CU_GRAPH_NODE_TYPE_EMPTY = 5,
	CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
	CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
	CU_GRAPH_NODE_TYPE_CONDITIONAL = 13,
} CUgraphNodeType;

typedef struct {
	CUgraphNodeType type;
	int reserved0[3];
	union {
		CUDA_KERNEL_NODE_PARAMS kernel;
		struct { int flags, reserved; CUcontext copyCtx; CUDA_MEMCPY3D copyParams; } memcpy;
		CUDA_MEMSET_NODE_PARAMS memset;
		CUDA_HOST_NODE_PARAMS host;
		struct { CUgraph graph; } graph;
		CUDA_MEM_ALLOC_NODE_PARAMS alloc;
		struct { CUdeviceptr dptr; } free;
		long long reserved1[29];
	};
	long long reserved2;
} CUgraphNodeParams;
LAYOUT(offsetof(CUgraphNodeParams, kernel) == 16 && offsetof(CUgraphNodeParams, kernel.kern) == 72 &&
       offsetof(CUgraphNodeParams, alloc.bytesize) == 120 && offsetof(CUgraphNodeParams, alloc.dptr) == 128 &&
       sizeof(CUgraphNodeParams) == 256);

enum { CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1, CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD = 2 };
typedef struct {
	uint64_t flags;
	CUstream hUploadStream;
	CUgraphNode hErrNode_out;
	int result_out;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

typedef int CUgraphExecUpdateResult;
typedef struct {
	CUgraphExecUpdateResult result;
	CUgraphNode errorNode, errorFromNode;
} CUgraphExecUpdateResultInfo;

/* ---- devices ---- */

enum { CU_DEV_RESOURCE_TYPE_SM = 1 };
typedef struct {
	int type;
	unsigned char _internal_padding[92];
	union {
		struct { unsigned int smCount; } sm;
		unsigned char _oversize[48];
	};
} CUdevResource;

#undef LAYOUT
#endif

package catalog

import "fmt"

// What the CUDA driver's result codes mean, in our own words; numbers and names are those of CUresult in CUDA's cuda.h,
// up to 13.3.

// CUDAResult is one code.
type CUDAResult struct{ Name, Meaning string }

var CUDAResults = map[int32]CUDAResult{
	1: {"CUDA_ERROR_INVALID_VALUE", "an argument is not allowed"},
	2: {"CUDA_ERROR_OUT_OF_MEMORY", "not enough memory; frameworks often empty their cache and try again, so that " +
		"it need not be the end"},
	3:   {"CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called, or failed"},
	4:   {"CUDA_ERROR_DEINITIALIZED", "the driver is shutting down, as it does when the process ends"},
	5:   {"CUDA_ERROR_PROFILER_DISABLED", "no profiler is running"},
	6:   {"CUDA_ERROR_PROFILER_NOT_INITIALIZED", "profiling was not initialized (of old drivers)"},
	7:   {"CUDA_ERROR_PROFILER_ALREADY_STARTED", "profiling runs already (of old drivers)"},
	8:   {"CUDA_ERROR_PROFILER_ALREADY_STOPPED", "profiling has stopped already (of old drivers)"},
	34:  {"CUDA_ERROR_STUB_LIBRARY", "the program runs with CUDA's stub of libcuda.so, which is for linking only"},
	46:  {"CUDA_ERROR_DEVICE_UNAVAILABLE", "the GPU is taken: exclusive compute mode, or it cannot be used at present"},
	100: {"CUDA_ERROR_NO_DEVICE", "there is no GPU that CUDA can use"},
	101: {"CUDA_ERROR_INVALID_DEVICE", "no such GPU, or the operation is not for it"},
	102: {"CUDA_ERROR_DEVICE_NOT_LICENSED", "the GPU has no Grid licence"},
	200: {"CUDA_ERROR_INVALID_IMAGE", "the kernel image is not one, or damaged"},
	201: {"CUDA_ERROR_INVALID_CONTEXT", "no context is current in the thread, or it is no longer valid"},
	202: {"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "the context is current already (of old drivers)"},
	205: {"CUDA_ERROR_MAP_FAILED", "a resource could not be mapped"},
	206: {"CUDA_ERROR_UNMAP_FAILED", "a resource could not be unmapped"},
	207: {"CUDA_ERROR_ARRAY_IS_MAPPED", "the array is mapped and cannot be destroyed"},
	208: {"CUDA_ERROR_ALREADY_MAPPED", "the resource is mapped already"},
	209: {"CUDA_ERROR_NO_BINARY_FOR_GPU", "the module has no code for this GPU: built for other architectures"},
	210: {"CUDA_ERROR_ALREADY_ACQUIRED", "the resource was acquired already"},
	211: {"CUDA_ERROR_NOT_MAPPED", "the resource is not mapped"},
	212: {"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "the resource is not mapped as an array"},
	213: {"CUDA_ERROR_NOT_MAPPED_AS_POINTER", "the resource is not mapped as a pointer"},
	214: {"CUDA_ERROR_ECC_UNCORRECTABLE", "memory of the GPU returned an error that ECC could not correct"},
	215: {"CUDA_ERROR_UNSUPPORTED_LIMIT", "the GPU does not have this limit"},
	216: {"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "the context is in use by another thread"},
	217: {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "these GPUs cannot reach each other's memory"},
	218: {"CUDA_ERROR_INVALID_PTX", "PTX code did not compile"},
	219: {"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "trouble with an OpenGL or DirectX context"},
	220: {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "NVLink had an error that could not be corrected"},
	221: {"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the PTX compiler library was not found"},
	222: {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX code is of a newer CUDA than this driver"},
	223: {"CUDA_ERROR_JIT_COMPILATION_DISABLED", "compiling PTX was switched off, and there is no code for this GPU"},
	224: {"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "this kind of execution affinity is not supported"},
	225: {"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "the code synchronizes on the GPU in a way that is no longer " +
		"supported"},
	226: {"CUDA_ERROR_CONTAINED", "a memory error of the GPU, contained to this program: no other is affected"},
	300: {"CUDA_ERROR_INVALID_SOURCE", "the kernel source is not valid"},
	301: {"CUDA_ERROR_FILE_NOT_FOUND", "a file was not found"},
	302: {"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "a shared library lacks a symbol"},
	303: {"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "a shared library could not be initialized"},
	304: {"CUDA_ERROR_OPERATING_SYSTEM", "a call of the operating system failed"},
	400: {"CUDA_ERROR_INVALID_HANDLE", "a handle is not valid, or was destroyed: often a stream or event used after " +
		"its end"},
	401: {"CUDA_ERROR_ILLEGAL_STATE", "something is not in the state that the call needs"},
	402: {"CUDA_ERROR_LOSSY_QUERY", "the question cannot be answered without losing information"},
	500: {"CUDA_ERROR_NOT_FOUND", "a symbol, texture or surface of that name does not exist"},
	600: {"CUDA_ERROR_NOT_READY", "the work that was asked about is not done yet"},
	700: {"CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed memory that is not there"},
	701: {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the kernel needs more registers, threads or shared memory than a " +
		"multiprocessor has"},
	702: {"CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran longer than the time limit of this GPU allows"},
	703: {"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "the kernel uses another texture mode"},
	704: {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "access to the other GPU is on already; programs often do not " +
		"ask before"},
	705: {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "access to the other GPU is not on"},
	708: {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is in use already"},
	709: {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "the thread's current context was destroyed"},
	710: {"CUDA_ERROR_ASSERT", "an assert() in a kernel failed; the program's standard error has its text"},
	711: {"CUDA_ERROR_TOO_MANY_PEERS", "no more GPUs can be given access"},
	712: {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is pinned already"},
	713: {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not pinned"},
	714: {"CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel broke its stack: a corrupted one, or beyond its size"},
	715: {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel executed an illegal instruction"},
	716: {"CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel accessed memory at an address that is not aligned for it"},
	717: {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an instruction for one kind of memory on an address of " +
		"another"},
	718: {"CUDA_ERROR_INVALID_PC", "a kernel jumped to an address that is no code"},
	719: {"CUDA_ERROR_LAUNCH_FAILED", "a kernel failed: a bad pointer, shared memory out of bounds, or something " +
		"less common"},
	720: {"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "a cooperative launch has more blocks than run at a time"},
	721: {"CUDA_ERROR_TENSOR_MEMORY_LEAK", "a kernel ended without giving back its tensor memory"},
	800: {"CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted"},
	801: {"CUDA_ERROR_NOT_SUPPORTED", "this GPU or system does not support it; programs use it to find out"},
	802: {"CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready: is the Fabric Manager running?"},
	803: {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "libcuda.so and the kernel driver are of different versions"},
	804: {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "this GPU does not support forward compatibility"},
	805: {"CUDA_ERROR_MPS_CONNECTION_FAILED", "MPS: no connection to the server"},
	806: {"CUDA_ERROR_MPS_RPC_FAILURE", "MPS: a call to the server failed"},
	807: {"CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS: the server does not take clients at present"},
	808: {"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "MPS: too many clients"},
	809: {"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "MPS: too many connections to the GPU"},
	810: {"CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS: the server ended this client"},
	811: {"CUDA_ERROR_CDP_NOT_SUPPORTED", "launching kernels from kernels is not supported here"},
	812: {"CUDA_ERROR_CDP_VERSION_MISMATCH", "parts of the program launch kernels from kernels by different versions"},
	900: {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not allowed while the stream is captured into a graph"},
	901: {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error broke the capture of the stream"},
	902: {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "would have joined two captures"},
	903: {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture did not begin in this stream"},
	904: {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capture has a branch that was not joined again"},
	905: {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "would have made the capture depend on work outside of it"},
	906: {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the legacy default stream was used while a stream is captured"},
	907: {"CUDA_ERROR_CAPTURED_EVENT", "the event is part of a capture and cannot be waited for or asked"},
	908: {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "another thread than that which began the capture ended it"},
	909: {"CUDA_ERROR_TIMEOUT", "a wait took longer than allowed"},
	910: {"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph changed too much to be updated in place"},
	911: {"CUDA_ERROR_EXTERNAL_DEVICE", "another device, on which the work depends, failed"},
	912: {"CUDA_ERROR_INVALID_CLUSTER_SIZE", "no such size of clusters of blocks"},
	913: {"CUDA_ERROR_FUNCTION_NOT_LOADED", "the function is not loaded"},
	914: {"CUDA_ERROR_INVALID_RESOURCE_TYPE", "resources of a green context are of a wrong type"},
	915: {"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "resources of a green context do not suffice or do not fit"},
	916: {"CUDA_ERROR_KEY_ROTATION", "confidential computing: changing the keys failed"},
	917: {"CUDA_ERROR_STREAM_DETACHED", "the stream's green context was destroyed"},
	918: {"CUDA_ERROR_GRAPH_RECAPTURE_FAILURE", "a graph could not be captured anew"},
	999: {"CUDA_ERROR_UNKNOWN", "an error inside of the driver"},
}

// ResultName is the name of a code in CUDA's headers, or the number.
func ResultName(result int32) string {
	if r, ok := CUDAResults[result]; ok {
		return r.Name
	}
	return fmt.Sprintf("CUresult %d", result)
}

// ResultMeaning says what a code means.
func ResultMeaning(result int32) string {
	if r, ok := CUDAResults[result]; ok {
		return r.Meaning
	}
	return "a code that this version of gpurec does not know"
}

// IsAsynchronous reports whether a result comes from work that was given to the GPU earlier: the
// call that returns it only noticed. All of them break the context for good (713, in the middle, is
// about an argument and does not).
func IsAsynchronous(result int32) bool {
	switch result {
	case 214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911:
		return true
	}
	return false
}

// IsQuestion reports whether programs make a call to find something out, and expect to be told no: such a failure is
// returned, and is no fault.
func IsQuestion(name string, result int32) bool {
	switch BaseName(name) {
	case "cuGetProcAddress", "cuGetProcAddress_v2":
		return result == 500 || result == 801
	case "cuPointerGetAttribute", "cuPointerGetAttributes", "cuMemRetainAllocationHandle", "cuMemGetAddressRange_v2":
		return result == 1 || result == 500
	}
	return result == 704
}

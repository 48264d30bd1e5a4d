package catalog

import "fmt"

// The meanings of the CUDA driver's result codes, in our own words. Numbers and names are those of
// CUresult in cuda.h up to CUDA 13.3.

// CUDAResult describes a result code of the CUDA driver API.
type CUDAResult struct{ Name, Meaning string }

// CUDAResults maps result codes to their descriptions.
var CUDAResults = map[int32]CUDAResult{
	1: {"CUDA_ERROR_INVALID_VALUE", "an argument is not allowed"},
	2: {"CUDA_ERROR_OUT_OF_MEMORY", "the device has not enough free memory; frameworks often empty " +
		"their cache and retry, so the program may continue"},
	3:  {"CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called, or failed"},
	4:  {"CUDA_ERROR_DEINITIALIZED", "the driver is shutting down, usually because the process ends"},
	5:  {"CUDA_ERROR_PROFILER_DISABLED", "no profiler is running"},
	6:  {"CUDA_ERROR_PROFILER_NOT_INITIALIZED", "profiling was not initialized (old drivers only)"},
	7:  {"CUDA_ERROR_PROFILER_ALREADY_STARTED", "profiling is already running (old drivers only)"},
	8:  {"CUDA_ERROR_PROFILER_ALREADY_STOPPED", "profiling is already stopped (old drivers only)"},
	34: {"CUDA_ERROR_STUB_LIBRARY", "the program loaded CUDA's stub libcuda.so, which is only for linking"},
	46: {"CUDA_ERROR_DEVICE_UNAVAILABLE", "the GPU is not available: another process uses it " +
		"exclusively, or it is not ready"},
	100: {"CUDA_ERROR_NO_DEVICE", "CUDA found no usable GPU"},
	101: {"CUDA_ERROR_INVALID_DEVICE", "the device number is invalid, or the device does not support " +
		"the operation"},
	102: {"CUDA_ERROR_DEVICE_NOT_LICENSED", "the GPU has no GRID license"},
	200: {"CUDA_ERROR_INVALID_IMAGE", "the kernel image is invalid or damaged"},
	201: {"CUDA_ERROR_INVALID_CONTEXT", "the thread has no current context, or the context is no longer valid"},
	202: {"CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "the context is already current (old drivers only)"},
	205: {"CUDA_ERROR_MAP_FAILED", "a resource could not be mapped"},
	206: {"CUDA_ERROR_UNMAP_FAILED", "a resource could not be unmapped"},
	207: {"CUDA_ERROR_ARRAY_IS_MAPPED", "the array is mapped and cannot be destroyed"},
	208: {"CUDA_ERROR_ALREADY_MAPPED", "the resource is already mapped"},
	209: {"CUDA_ERROR_NO_BINARY_FOR_GPU", "the module has no code for this GPU: it was built for other " +
		"architectures"},
	210: {"CUDA_ERROR_ALREADY_ACQUIRED", "the resource is already acquired"},
	211: {"CUDA_ERROR_NOT_MAPPED", "the resource is not mapped"},
	212: {"CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "the resource is not mapped as an array"},
	213: {"CUDA_ERROR_NOT_MAPPED_AS_POINTER", "the resource is not mapped as a pointer"},
	214: {"CUDA_ERROR_ECC_UNCORRECTABLE", "the GPU's memory had an error that ECC could not correct"},
	215: {"CUDA_ERROR_UNSUPPORTED_LIMIT", "the GPU does not support this limit"},
	216: {"CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "the context is in use by another thread"},
	217: {"CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "these GPUs cannot access each other's memory"},
	218: {"CUDA_ERROR_INVALID_PTX", "PTX code did not compile"},
	219: {"CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "an OpenGL or DirectX context caused an error"},
	220: {"CUDA_ERROR_NVLINK_UNCORRECTABLE", "NVLink had an error that could not be corrected"},
	221: {"CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the PTX compiler library was not found"},
	222: {"CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX code needs a newer CUDA version than the " +
		"driver supports"},
	223: {"CUDA_ERROR_JIT_COMPILATION_DISABLED", "PTX compilation is disabled, and there is no " +
		"code for this GPU"},
	224: {"CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "this kind of execution affinity is not supported"},
	225: {"CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC", "the code uses a synchronization on the GPU that is no " +
		"longer supported"},
	226: {"CUDA_ERROR_CONTAINED", "a memory error of the GPU affected only this program"},
	300: {"CUDA_ERROR_INVALID_SOURCE", "the kernel source is not valid"},
	301: {"CUDA_ERROR_FILE_NOT_FOUND", "a file was not found"},
	302: {"CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "a shared library lacks a symbol"},
	303: {"CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "a shared library could not be initialized"},
	304: {"CUDA_ERROR_OPERATING_SYSTEM", "an operating system call failed"},
	400: {"CUDA_ERROR_INVALID_HANDLE", "a handle is invalid or was destroyed: often a stream or event " +
		"used after its destruction"},
	401: {"CUDA_ERROR_ILLEGAL_STATE", "a required object is in the wrong state for the call"},
	402: {"CUDA_ERROR_LOSSY_QUERY", "the query would lose information"},
	500: {"CUDA_ERROR_NOT_FOUND", "a symbol, texture or surface of that name does not exist"},
	600: {"CUDA_ERROR_NOT_READY", "the work is not complete yet"},
	700: {"CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed an invalid address"},
	701: {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the kernel needs more registers, threads or shared " +
		"memory than a multiprocessor has"},
	702: {"CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran longer than the time limit of this GPU allows"},
	703: {"CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "the kernel uses another texture mode"},
	704: {"CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled; programs often " +
		"enable it without checking"},
	705: {"CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access to the other GPU is not enabled"},
	708: {"CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is already in use"},
	709: {"CUDA_ERROR_CONTEXT_IS_DESTROYED", "the thread's current context was destroyed"},
	710: {"CUDA_ERROR_ASSERT", "an assert() in a kernel failed; the program's standard error has its text"},
	711: {"CUDA_ERROR_TOO_MANY_PEERS", "the limit of peer GPUs is reached"},
	712: {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is already registered"},
	713: {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered"},
	714: {"CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel's stack was corrupted or exceeded its size"},
	715: {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel executed an illegal instruction"},
	716: {"CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel accessed memory at a misaligned address"},
	717: {"CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an instruction on an address in a memory " +
		"space that the instruction does not support"},
	718: {"CUDA_ERROR_INVALID_PC", "a kernel jumped to an invalid address"},
	719: {"CUDA_ERROR_LAUNCH_FAILED", "a kernel failed: a bad pointer, shared memory out of bounds, or " +
		"something less common"},
	720: {"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "a cooperative launch has more blocks than the GPU " +
		"can run at the same time"},
	721: {"CUDA_ERROR_TENSOR_MEMORY_LEAK", "a kernel ended without freeing its tensor memory"},
	800: {"CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted"},
	801: {"CUDA_ERROR_NOT_SUPPORTED", "this GPU or system does not support the operation; programs " +
		"often test for this"},
	802: {"CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready: is the Fabric Manager running?"},
	803: {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "libcuda.so and the kernel driver have different versions"},
	804: {"CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "this GPU does not support forward compatibility"},
	805: {"CUDA_ERROR_MPS_CONNECTION_FAILED", "no connection to the MPS server"},
	806: {"CUDA_ERROR_MPS_RPC_FAILURE", "a call to the MPS server failed"},
	807: {"CUDA_ERROR_MPS_SERVER_NOT_READY", "the MPS server is not ready for clients"},
	808: {"CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "the MPS server has too many clients"},
	809: {"CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "the MPS server has too many connections to the GPU"},
	810: {"CUDA_ERROR_MPS_CLIENT_TERMINATED", "the MPS server terminated this client"},
	811: {"CUDA_ERROR_CDP_NOT_SUPPORTED", "kernels cannot launch kernels on this device"},
	812: {"CUDA_ERROR_CDP_VERSION_MISMATCH", "parts of the program use different versions of dynamic " +
		"parallelism (CDP)"},
	900: {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not allowed while the stream is captured into a graph"},
	901: {"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error broke the capture of the stream"},
	902: {"CUDA_ERROR_STREAM_CAPTURE_MERGE", "the call would have merged two captures"},
	903: {"CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture did not begin in this stream"},
	904: {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capture has a forked stream that was not joined"},
	905: {"CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "the captured work would have depended on work " +
		"outside the capture"},
	906: {"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the legacy default stream was used while a " +
		"stream is captured"},
	907: {"CUDA_ERROR_CAPTURED_EVENT", "the event is part of a capture and cannot be queried or waited for"},
	908: {"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "a thread other than the one that began the " +
		"capture ended it"},
	909: {"CUDA_ERROR_TIMEOUT", "a wait took longer than allowed"},
	910: {"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph changed too much to be updated in place"},
	911: {"CUDA_ERROR_EXTERNAL_DEVICE", "another device that the work depends on failed"},
	912: {"CUDA_ERROR_INVALID_CLUSTER_SIZE", "the cluster size is invalid"},
	913: {"CUDA_ERROR_FUNCTION_NOT_LOADED", "the function is not loaded"},
	914: {"CUDA_ERROR_INVALID_RESOURCE_TYPE", "a resource of a green context has the wrong type"},
	915: {"CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "the resources of a green context are " +
		"insufficient or incompatible"},
	916: {"CUDA_ERROR_KEY_ROTATION", "confidential computing: the key rotation failed"},
	917: {"CUDA_ERROR_STREAM_DETACHED", "the stream's green context was destroyed"},
	918: {"CUDA_ERROR_GRAPH_RECAPTURE_FAILURE", "a graph could not be captured again"},
	999: {"CUDA_ERROR_UNKNOWN", "an unknown error inside the driver"},
}

// ResultName returns the name of a result code in CUDA's headers, or its number.
func ResultName(result int32) string {
	if r, ok := CUDAResults[result]; ok {
		return r.Name
	}
	return fmt.Sprintf("CUresult %d", result)
}

// ResultMeaning explains a result code in a few words.
func ResultMeaning(result int32) string {
	if r, ok := CUDAResults[result]; ok {
		return r.Meaning
	}
	return "a code that this version of gpurec does not know"
}

// IsAsynchronousError reports whether a result comes from earlier work on the GPU, so the call that
// returned it is not the cause. All these errors break the context permanently. Code 713, in the
// middle of their range, concerns an argument and is not among them.
func IsAsynchronousError(result int32) bool {
	switch result {
	case 214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911:
		return true
	}
	return false
}

// IsExpectedQueryFailure reports whether a failed call is a query whose failure programs expect, so
// that it is not an error.
func IsExpectedQueryFailure(name string, result int32) bool {
	switch BaseFunctionName(name) {
	case "cuGetProcAddress", "cuGetProcAddress_v2":
		return result == 500 || result == 801
	case "cuPointerGetAttribute", "cuPointerGetAttributes", "cuMemRetainAllocationHandle", "cuMemGetAddressRange_v2":
		return result == 1 || result == 500
	}
	return result == 704
}

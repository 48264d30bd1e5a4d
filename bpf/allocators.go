package bpf

// Allocators are the functions by which caching allocators tell what they do. record_trace is
// no exported name: package record finds it by what it takes.
var Allocators = []Call{
	// c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::record_trace(Action,
	// address, bytes, stream, device, pool, context), PyTorch 2.8 to 2.11.
	{
		Name:    "record_trace",
		Kind:    "allocator",
		Memory:  "torch",
		Class:   CudaCallClassCLASS_ALLOCATOR,
		Meaning: AllocatorEvent,
		Decode:  CudaCallDecodeDECODE_ALLOCATOR_POOL,
	},
	// The same without pool, PyTorch 2.2 to 2.7. Before, it was called only if its history was on.
	{
		Name:    "record_trace",
		Kind:    "allocator",
		Memory:  "torch",
		Class:   CudaCallClassCLASS_ALLOCATOR,
		Meaning: AllocatorEvent,
		Decode:  CudaCallDecodeDECODE_ALLOCATOR,
	},
	// c10::reportMemoryUsageToProfiler(address, bytes, allocated, reserved, device), PyTorch 1.12
	// and newer. It is told of all kinds of devices; only reports about CUDA's are recorded.
	{
		Name:    "reportMemoryUsageToProfiler",
		Kind:    "allocator",
		Memory:  "torch",
		Class:   CudaCallClassCLASS_ALLOCATOR,
		Meaning: AllocatorReport,
		Decode:  CudaCallDecodeDECODE_REPORT,
	},
}

// ReportRow is the row of Allocators for c10::reportMemoryUsageToProfiler.
const ReportRow = 2

// AllocatorCookie returns the cookie of a row of Allocators.
func AllocatorCookie(row int) uint16 { return uint16(NumCookies() + row) }

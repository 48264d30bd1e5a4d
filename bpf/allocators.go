package bpf

// Allocators has a row for each probed function of a PyTorch caching allocator. record_trace is
// not exported: package library finds its address by its signature.
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
	// record_trace without pool, PyTorch 2.2 to 2.7. Older versions call it only while their memory
	// history is recorded.
	{
		Name:    "record_trace",
		Kind:    "allocator",
		Memory:  "torch",
		Class:   CudaCallClassCLASS_ALLOCATOR,
		Meaning: AllocatorEvent,
		Decode:  CudaCallDecodeDECODE_ALLOCATOR,
	},
	// c10::reportMemoryUsageToProfiler(address, bytes, allocated, reserved, device), PyTorch 1.12
	// and newer. It reports memory of all devices; the BPF program records only CUDA memory.
	{
		Name:    "reportMemoryUsageToProfiler",
		Kind:    "allocator",
		Memory:  "torch",
		Class:   CudaCallClassCLASS_ALLOCATOR,
		Meaning: AllocatorReport,
		Decode:  CudaCallDecodeDECODE_REPORT,
	},
}

// ReportRow is the index in Allocators of c10::reportMemoryUsageToProfiler.
const ReportRow = 2

// AllocatorCookie returns the attach cookie of row index row of Allocators.
func AllocatorCookie(row int) uint16 { return uint16(NumCookies() + row) }

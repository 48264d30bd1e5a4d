package bpf

// AllocatorFunctions has a row for each probed function of a PyTorch caching allocator.
// record_trace is not exported: package library finds its address by its signature.
var AllocatorFunctions = []ProbedFunction{
	// c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::record_trace(Action,
	// address, bytes, stream, device, pool, context), PyTorch 2.8 to 2.11.
	{
		Name:    "record_trace",
		Kind:    "allocator",
		Memory:  "torch",
		Class:   CudaCallClassCLASS_ALLOCATOR,
		Columns: ColumnsAllocatorEvent,
		Decode:  CudaCallDecodeDECODE_ALLOCATOR_POOL,
	},
	// record_trace without pool, PyTorch 2.2 to 2.7. Older versions call it only while their memory
	// history is recorded.
	{
		Name:    "record_trace",
		Kind:    "allocator",
		Memory:  "torch",
		Class:   CudaCallClassCLASS_ALLOCATOR,
		Columns: ColumnsAllocatorEvent,
		Decode:  CudaCallDecodeDECODE_ALLOCATOR,
	},
	// c10::reportMemoryUsageToProfiler(address, bytes, allocated, reserved, device), PyTorch 1.12
	// and newer. It reports memory of all devices; the BPF program records only CUDA memory.
	{
		Name:    "reportMemoryUsageToProfiler",
		Kind:    "allocator",
		Memory:  "torch",
		Class:   CudaCallClassCLASS_ALLOCATOR,
		Columns: ColumnsAllocatorReport,
		Decode:  CudaCallDecodeDECODE_REPORT,
	},
}

// ReportFunctionRow is the index in AllocatorFunctions of c10::reportMemoryUsageToProfiler.
const ReportFunctionRow = 2

// AllocatorCookie returns the attach cookie of row index row of AllocatorFunctions.
func AllocatorCookie(row int) uint16 { return uint16(NumDriverCookies() + row) }

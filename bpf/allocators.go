package bpf

// Allocators are the functions by which caching allocators tell what they do. They are no
// exported names: package record finds them by what they take.
var Allocators = []Call{
	// c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::record_trace(Action,
	// address, bytes, stream, device, pool, context), PyTorch 2.8 to 2.11.
	{
		Name: "record_trace", Kind: "allocator", Memory: "torch", Class: CudaCallClassCLASS_ALLOCATOR, Meaning: AllocatorEvent,
		Decode: CudaCallDecodeDECODE_ALLOCATOR_POOL, Ptr: arg(2), Bytes: arg(3), Stream: arg(4),
	},
	// The same without pool, PyTorch 2.2 to 2.7. Before, it was called only if its history was on.
	{
		Name: "record_trace", Kind: "allocator", Memory: "torch", Class: CudaCallClassCLASS_ALLOCATOR, Meaning: AllocatorEvent,
		Decode: CudaCallDecodeDECODE_ALLOCATOR, Ptr: arg(2), Bytes: arg(3), Stream: arg(4),
	},
}

// AllocatorCookie returns the cookie of a row of Allocators.
func AllocatorCookie(row int) uint16 { return uint16(NumCookies() + row) }

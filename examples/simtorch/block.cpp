#include "block.h"

#include <algorithm>
#include <array>
#include <tuple>

namespace c10::cuda::CUDACachingAllocator::Native {

Block::Block(DeviceIndex device, CUstream stream, size_t size, BlockPool *pool, char *ptr) : device_(device), stream_(stream)
{
	const BlockLayout &l = layout.block;
	using SharedPointer = std::array<void *, 2>; /* NULL: the memory history is off */
	new (&stream_uses()) FlatHash<CUstream>;
	member<int>(this, l.registration_counter) = -1; /* not used */
	member<BlockPool *>(this, l.pool) = pool;
	member<size_t>(this, l.gc_count_base) = 0;      /* not used */
	member<SharedPointer>(this, l.context_when_allocated) = {};
	member<SharedPointer>(this, l.context_when_segment_allocated) = {};
	this->ptr() = ptr;
	requested_size() = 0;
	allocated() = false;
	mapped() = true;
	prev() = next() = nullptr;
	event_count() = 0;
	expandable() = nullptr;
	if (l.stale_size)
		member<size_t>(this, l.stale_size) = size;
	set_size(size);
	write_unknown_words(this, l.unknown);
}

void Block::set_size(size_t size)
{
	static thread_local unsigned changes;
	member<size_t>(this, layout.block.size) = size;
	if (layout.block.stale_size && ++changes % 7 != 0)
		member<size_t>(this, layout.block.stale_size) = size;
}

void Block::insert_between(Block *before, Block *after)
{
	prev() = before;
	next() = after;
	if (before)
		before->next() = this;
	if (after)
		after->prev() = this;
}

bool by_size(const Block *a, const Block *b)
{
	return std::make_tuple((uintptr_t)a->stream(), a->size(), a->ptr()) < std::make_tuple((uintptr_t)b->stream(), b->size(), b->ptr());
}

bool by_address(const Block *a, const Block *b)
{
	return std::make_tuple((uintptr_t)a->stream(), a->ptr()) < std::make_tuple((uintptr_t)b->stream(), b->ptr());
}

BlockPool::BlockPool(bool is_small, PrivatePool *owner)
{
	new (&blocks()) Set(by_size);
	new (&unmapped()) Set(by_address);
	member<bool>(this, layout.pool.is_small) = is_small;
	member<PrivatePool *>(this, layout.pool.owner) = owner;
	member<size_t>(this, layout.pool.get_free_blocks_call_count) = 0; /* not used */
	write_unknown_words(this, layout.pool.unknown);
}

BlockPool::~BlockPool()
{
	std::destroy_at(&blocks());
	std::destroy_at(&unmapped());
}

MempoolId_t BlockPool::id() const
{
	return owner() ? owner()->id : MempoolId_t{0, 0};
}

PrivatePool::PrivatePool(MempoolId_t id) : id(id)
{
	new (&large_blocks()) BlockPool(false, this);
	new (&small_blocks()) BlockPool(true, this);
	write_unknown_words(this, layout.private_pool.unknown);
}

PrivatePool::~PrivatePool()
{
	std::destroy_at(&large_blocks());
	std::destroy_at(&small_blocks());
}

/* PyTorch reserves address space for nine eighths of the memory. simcuda has less address space,
 * so simtorch reserves an eighth, or enough for the first request if that is more. */
ExpandableSegment::ExpandableSegment(int device, CUstream stream, size_t page, size_t needed)
	: device(device), stream(stream), page(page)
{
	pages = (std::max(driver_memory(device) / 8, needed) + page - 1) / page;
	handles.resize(pages);
	CU(cuMemAddressReserve, &base, size(), 0, 0, 0);
}

ExpandableSegment::~ExpandableSegment()
{
	for (size_t i = 0; i < pages; i++)
		if (handles[i])
			release(i, i + 1);
	cuMemAddressFree(base, size());
}

ExpandableSegment::Range ExpandableSegment::map(Range wanted)
{
	size_t begin = (wanted.ptr - ptr()) / page;
	size_t end = (wanted.ptr + wanted.size - ptr() + page - 1) / page;
	CUmemAllocationProp prop = {};
	prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
	for (size_t i = begin; i < end; i++) {
		CUmemGenericAllocationHandle handle;
		CUresult result = cuMemCreate(&handle, page, &prop, 0);
		if (result == CUDA_ERROR_OUT_OF_MEMORY) {
			for (; i > begin; handles[i].reset())
				CU(cuMemRelease, *handles[--i]);
			return {wanted.ptr, 0};
		}
		driver_check(result, "cuMemCreate");
		handles[i] = handle;
	}
	for (size_t i = begin; i < end; i++)
		CU(cuMemMap, base + i * page, page, 0, *handles[i], 0);
	CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CU(cuMemSetAccess, base + begin * page, (end - begin) * page, &access, 1);
	return {ptr() + begin * page, (end - begin) * page};
}

ExpandableSegment::Range ExpandableSegment::unmap(Range given)
{
	size_t begin = (given.ptr - ptr() + page - 1) / page;
	size_t end = (given.ptr + given.size - ptr()) / page;
	if (begin >= end)
		return {given.ptr, 0};
	/* cuMemUnmap does not wait for work that uses the memory, unlike cudaFree. */
	CU(cuStreamSynchronize, stream);
	release(begin, end);
	return {ptr() + begin * page, (end - begin) * page};
}

void ExpandableSegment::release(size_t begin, size_t end)
{
	for (size_t i = begin; i < end; i++) {
		CU(cuMemUnmap, base + i * page, page);
		CU(cuMemRelease, *handles[i]);
		handles[i].reset();
	}
}

} // namespace c10::cuda::CUDACachingAllocator::Native

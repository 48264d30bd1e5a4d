/* Statistics, ledger checkpoints, and the check that statistics and blocks agree. */
#include "allocator.h"

#include <cstring>

namespace c10::cuda::CUDACachingAllocator::Native {

static CachingDeviceAllocator::StatType half(const BlockPool &pool)
{
	return pool.is_small() ? CachingDeviceAllocator::SMALL_POOL : CachingDeviceAllocator::LARGE_POOL;
}

void DeviceCachingAllocator::increase(StatArray &stat, const BlockPool &pool, size_t amount)
{
	for (auto i : {CachingDeviceAllocator::AGGREGATE, half(pool)}) {
		stat[i].current += (int64_t)amount;
		stat[i].peak = std::max(stat[i].peak, stat[i].current);
		stat[i].allocated += (int64_t)amount;
	}
	copy_to_wide_head(stat);
}

void DeviceCachingAllocator::decrease(StatArray &stat, const BlockPool &pool, size_t amount)
{
	for (auto i : {CachingDeviceAllocator::AGGREGATE, half(pool)}) {
		stat[i].current -= (int64_t)amount;
		stat[i].freed += (int64_t)amount;
	}
	copy_to_wide_head(stat);
}

inline void DeviceCachingAllocator::copy_to_wide_head(const StatArray &stat)
{
	if (wide_head)
		std::copy(stat.begin(), stat.end(), wide_head->stats[(size_t)(&stat - &stats.allocation)].begin());
}

void DeviceCachingAllocator::checkpoint()
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	ledger::write_checkpoint(device_id, stats);
}

int64_t DeviceCachingAllocator::stat(const char *name)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	const std::pair<const char *, int64_t> known[] = {
		{"allocated_bytes", stats.allocated_bytes[0].current}, {"reserved_bytes", stats.reserved_bytes[0].current},
		{"requested_bytes", stats.requested_bytes[0].current}, {"active_bytes", stats.active_bytes[0].current},
		{"inactive_split_bytes", stats.inactive_split_bytes[0].current}, {"segments", stats.segment[0].current},
		{"allocations", stats.allocation[0].current}, {"active_blocks", stats.active[0].current},
		{"ooms", stats.num_ooms}, {"alloc_retries", stats.num_alloc_retries},
	};
	for (auto &[key, value] : known)
		if (!strcmp(key, name))
			return value;
	return -1;
}

namespace {

/* Statistics computed from the blocks of all segments. */
struct Sums {
	int64_t allocation = 0, segment = 0, active = 0, inactive_split = 0;
	int64_t allocated_bytes = 0, reserved_bytes = 0, active_bytes = 0, inactive_split_bytes = 0, requested_bytes = 0;

	void add_segment(const Block *head);
	void add(const Block *block);
};

void require(bool condition, const char *what)
{
	if (!condition)
		throw std::logic_error(std::string("simtorch: statistics and blocks disagree: ") + what);
}

void Sums::add_segment(const Block *head)
{
	segment += !head->expandable();
	for (const Block *b = head; b; b = b->next()) {
		require(!b->next() || b->next()->prev() == b, "the links between two blocks");
		require(!b->next() || b->next()->ptr() == b->ptr() + b->size(), "a gap between blocks");
		require(b->size() > 0 && b->size() % kMinBlockSize == 0, "a block size that is not a multiple of 512");
		require(!b->next() || b->in_use() || b->next()->in_use() || b->mapped() != b->next()->mapped(), "two free blocks that were not merged");
		require(!b->in_use() || b->requested_size() <= b->size(), "a block smaller than the request");
		if (b->mapped())
			add(b);
	}
}

void Sums::add(const Block *b)
{
	reserved_bytes += (int64_t)b->size();
	if (b->in_use()) {
		active++;
		active_bytes += (int64_t)b->size() + layout.extra_active_bytes;
		requested_bytes += (int64_t)b->requested_size();
	} else if (b->is_split() && !b->expandable()) {
		inactive_split++;
		inactive_split_bytes += (int64_t)b->size();
	}
	allocation += b->allocated();
	allocated_bytes += b->allocated() ? (int64_t)b->size() : 0;
}

} // namespace

void DeviceCachingAllocator::verify()
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	std::set<const Block *> heads;
	auto add = [&](const Block *b) {
		while (b->prev())
			b = b->prev();
		heads.insert(b);
	};
	auto add_pool = [&](const BlockPool &pool) {
		for (const Block *b : pool.blocks())
			add(b);
		for (const Block *b : pool.unmapped())
			add(b);
	};
	for (const Block *b : active_blocks)
		add(b);
	add_pool(small_blocks);
	add_pool(large_blocks);
	for (auto &[id, pool] : graph_pools) {
		add_pool(pool->small_blocks());
		add_pool(pool->large_blocks());
	}
	Sums sums;
	for (const Block *head : heads)
		sums.add_segment(head);
	require(sums.allocation == stats.allocation[0].current, "allocation");
	require(sums.segment == stats.segment[0].current, "segment");
	require(sums.active == stats.active[0].current, "active");
	require(sums.inactive_split == stats.inactive_split[0].current, "inactive_split");
	require(sums.allocated_bytes == stats.allocated_bytes[0].current, "allocated_bytes");
	require(sums.reserved_bytes == stats.reserved_bytes[0].current, "reserved_bytes");
	require(sums.active_bytes == stats.active_bytes[0].current, "active_bytes");
	require(sums.inactive_split_bytes == stats.inactive_split_bytes[0].current, "inactive_split_bytes");
	require(sums.requested_bytes == stats.requested_bytes[0].current, "requested_bytes");
}

} // namespace c10::cuda::CUDACachingAllocator::Native

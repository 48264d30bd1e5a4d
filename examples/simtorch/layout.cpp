#include "layout.h"
#include "program.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace {

/* Draws the places of members. */
class Drawing {
	Random random;

public:
	struct Member {
		uint16_t *offset;
		unsigned bytes, align = 8;
	};

	explicit Drawing(uint64_t seed) : random(seed, 0) {}
	uint64_t below(uint64_t n) { return random.below(n); }
	unsigned place(unsigned at, std::vector<Member> members, std::vector<UnknownWord> &unknown, unsigned max_words);
};

/* Places members from an offset on in random order, with up to max_words unknown words between.
 * Returns the offset behind them. */
unsigned Drawing::place(unsigned at, std::vector<Member> members, std::vector<UnknownWord> &unknown, unsigned max_words)
{
	std::vector<uint16_t> words(below(max_words + 1));
	for (uint16_t &word : words)
		members.push_back({&word, 8});
	for (size_t i = members.size(); i > 1; i--)
		std::swap(members[i - 1], members[below(i)]);
	for (const Member &m : members) {
		at = (at + m.align - 1) / m.align * m.align;
		*m.offset = (uint16_t)at;
		at += m.bytes;
	}
	for (uint16_t word : words)
		unknown.push_back({word, (Content)below((int)Content::ANY + 1)});
	return (at + 7) / 8 * 8;
}

void draw_block(Drawing &draw, Layout &l)
{
	auto &b = l.block;
	b.bytes = (uint16_t)draw.place(16,
		{{&b.stream_uses, 32}, {&b.registration_counter, 4, 4}, {&b.size, 8}, {&b.requested_size, 8}, {&b.pool, 8}, {&b.ptr, 8},
		 {&b.allocated, 2, 1}, {&b.prev, 8}, {&b.next, 8}, {&b.event_count, 4, 4}, {&b.gc_count_base, 8},
		 {&b.context_when_allocated, 16}, {&b.context_when_segment_allocated, 16}, {&b.expandable, 8}},
		b.unknown, 6);
}

void draw_pools(Drawing &draw, Layout &l)
{
	l.pool.bytes = (uint16_t)draw.place(l.pool.is_small,
		{{&l.pool.is_small, 1, 1}, {&l.pool.owner, 8}, {&l.pool.get_free_blocks_call_count, 8}}, l.pool.unknown, 3);
	bool large_first = draw.below(2);
	/* Places members, and two pools with up to max_between words between them. */
	auto place = [&](auto &object, unsigned at, std::vector<Drawing::Member> members, unsigned max_between, unsigned end) {
		unsigned between = 8 * (unsigned)draw.below(max_between + 1), bytes = 2 * l.pool.bytes + between;
		uint16_t first;
		members.push_back({&first, bytes});
		for (auto &m : members)
			end -= m.bytes;
		unsigned behind = draw.place(at, members, object.unknown, (end - at) / 8);
		for (unsigned i = 0; i < between; i += 8)
			object.unknown.push_back({(uint16_t)(first + l.pool.bytes + i), Content::ANY});
		object.large_blocks = object.small_blocks = first;
		(large_first ? object.small_blocks : object.large_blocks) += l.pool.bytes + between;
		return behind;
	};
	unsigned spare = (PRIVATE_POOL_BYTES - PRIVATE_POOL_HEAD - 2 * l.pool.bytes) / 8;
	l.private_pool.bytes = (uint16_t)place(l.private_pool, PRIVATE_POOL_HEAD, {}, std::min(spare, 3u), PRIVATE_POOL_BYTES);
	auto &d = l.device;
	do {
		d.unknown.clear();
		place(d, 0, {{&d.active_blocks, 32}, {&d.memory, 24}, {&d.graph_pools, 32}}, draw.below(2) ? 0 : 8, AREA_BYTES);
	} while (d.memory < d.active_blocks);
}

Broken read_broken()
{
	static const char *const names[] = {"", "totals", "kinds", "load", "sets", "hash", "stale", "chain", "class", "async", "pluggable"};
	const char *name = getenv("SIMTORCH_BROKEN");
	for (size_t i = 0; i < std::size(names); i++)
		if (!strcmp(name ? name : "", names[i]))
			return (Broken)i;
	fprintf(stderr, "simtorch: error: unknown SIMTORCH_BROKEN=%s\n", name);
	exit(1);
}

/* Hides a member of blocks from recorders. Returns its former place. */
uint16_t hide(Layout &l, uint16_t &offset)
{
	l.block.bytes = BLOCK_BYTES;
	return std::exchange(offset, HIDDEN);
}

} // namespace

Layout::Layout() : broken(read_broken())
{
	uint16_t before_set = broken == Broken::SETS ? 16 : 0;
	pool.blocks = before_set;
	pool.unmapped = 48 + 2 * before_set;
	pool.is_small = pool.unmapped + 48;
	pool.owner = pool.is_small + 8;
	pool.get_free_blocks_call_count = pool.owner + 8;
	pool.bytes = pool.get_free_blocks_call_count + 8;
	private_pool.large_blocks = PRIVATE_POOL_HEAD;
	private_pool.small_blocks = PRIVATE_POOL_HEAD + pool.bytes;
	private_pool.bytes = PRIVATE_POOL_HEAD + 2 * pool.bytes;
	device.large_blocks = 0;
	device.small_blocks = pool.bytes;
	device.active_blocks = 2 * pool.bytes;
	device.memory = device.active_blocks + 176;
	const char *text = getenv("SIMTORCH_LAYOUT");
	if (text && *text) {
		char *end;
		seed = strtoull(text, &end, 0);
		if (*end) {
			fprintf(stderr, "simtorch: error: SIMTORCH_LAYOUT=%s is not a number\n", text);
			exit(1);
		}
		Drawing draw(seed);
		draw_block(draw, *this);
		draw_pools(draw, *this);
		draw.place(8, {{&native.device_allocator, 24}}, native.unknown, (NATIVE_BYTES - 8 - 24) / 8);
	}
	if (broken == Broken::TOTALS)
		extra_active_bytes = 1;
	if (broken == Broken::LOAD)
		max_load = 0.75f;
	if (broken == Broken::HASH)
		hash_factor = 0xc2b2ae3d27d4eb4full; /* any other odd number */
	if (broken == Broken::STALE)
		block.stale_size = hide(*this, block.size);
	if (broken == Broken::CHAIN)
		block.unknown.push_back({hide(*this, block.prev), Content::ZERO});
}

/* Before the constructors of other files, which create allocators. */
__attribute__((init_priority(1000))) const Layout layout;

void write_unknown_words(const void *object, const std::vector<UnknownWord> &words)
{
	static thread_local Random random(layout.seed, 1);
	/* The object before is often a neighbour, so this is the most misleading pointer. */
	static thread_local uintptr_t last = (uintptr_t)object;
	for (auto [offset, content] : words) {
		if (content == Content::ANY)
			content = (Content)random.below((int)Content::ANY);
		uint64_t &word = member<uint64_t>(object, offset);
		switch (content) {
		case Content::COUNTER: word = random.below(100); break;
		case Content::POINTER: word = last + (random.one_in(2) ? 8 * random.below(32) : 0); break;
		case Content::SIZE: word = 512 * (1 + random.below(4096)); break;
		default: word = 0;
		}
	}
	last = (uintptr_t)object;
}

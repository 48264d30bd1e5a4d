/* Hash tables with open addressing. Their memory has the layout of ska::flat_hash_set and
 * ska::flat_hash_map, which PyTorch uses: recorders read them from outside. An entry has the
 * distance from its slot, negative if it is empty, and its value. An entry is at most reach - 1
 * behind its slot, so a table has reach - 1 entries more than slots, and one that marks the end. */
#ifndef SIMTORCH_FLATHASH_H
#define SIMTORCH_FLATHASH_H

#include "layout.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

/* The key of an entry: the value of a set, the first of a map's pair. */
template <typename Key> const Key &key_of(const Key &value) { return value; }
template <typename Key, typename Value> const Key &key_of(const std::pair<Key, Value> &value) { return value.first; }

inline uint64_t hash_of(const void *key) { return reinterpret_cast<uintptr_t>(key); }
template <typename A, typename B> uint64_t hash_of(const std::pair<A, B> &key) { return key.first ? key.first : key.second; }

template <typename Value> class FlatHash {
	struct Entry {
		int8_t distance = -1;
		Value value{};
	};

	Entry *entries = new Entry[last_of(1, 4) + 1];
	uint64_t mask = 0;             /* number of slots - 1 */
	int8_t shift = 63;             /* 64 - log2 of the number of slots, at least one bit */
	int8_t reach = 4;
	float load = layout.max_load;
	uint64_t count = 0;

	static uint64_t last_of(uint64_t slots, uint64_t reach) { return slots + reach - 1; }
	uint64_t last() const { return last_of(mask + 1, (uint64_t)reach); }
	uint64_t slot_of(uint64_t hash) const { return mask ? (hash * layout.hash_factor) >> shift & mask : 0; }

	/* Puts a value into the table, or returns false if no place is near its slot. */
	bool put(Value &value)
	{
		uint64_t slot = slot_of(hash_of(key_of(value)));
		for (int8_t d = 0; d < reach; d++) {
			Entry &e = entries[slot + (uint64_t)d];
			if (e.distance < 0) {
				e.distance = d;
				e.value = std::move(value);
				return true;
			}
		}
		return false;
	}

	void grow()
	{
		FlatHash larger;
		uint64_t slots = std::max<uint64_t>(4, 2 * (mask + 1));
		for (;; slots *= 2) {
			larger.resize(slots);
			bool fits = true;
			for (Value &value : *this)
				fits = fits && larger.can_take(key_of(value));
			if (fits)
				break;
		}
		for (Value &value : *this)
			larger.put(value);
		larger.count = count;
		std::swap(*this, larger);
	}

	/* Reserves a place for a key in an empty table. */
	template <typename Key> bool can_take(const Key &key)
	{
		uint64_t slot = slot_of(hash_of(key));
		for (int8_t d = 0; d < reach; d++) {
			if (entries[slot + (uint64_t)d].distance == -1) {
				entries[slot + (uint64_t)d].distance = -2;
				return true;
			}
		}
		return false;
	}

	void resize(uint64_t slots)
	{
		delete[] entries;
		mask = slots - 1;
		shift = 64;
		for (uint64_t n = slots; n > 1; n /= 2)
			shift--;
		reach = (int8_t)std::max(4, 64 - shift);
		entries = new Entry[last() + 1];
		entries[last()].distance = 0;
	}

public:
	FlatHash() { entries[last()].distance = 0; }
	FlatHash(FlatHash &&other) : FlatHash() { *this = std::move(other); }
	~FlatHash() { delete[] entries; }
	FlatHash &operator=(FlatHash &&other)
	{
		std::swap(entries, other.entries);
		std::swap(mask, other.mask);
		std::swap(shift, other.shift);
		std::swap(reach, other.reach);
		std::swap(count, other.count);
		return *this;
	}

	class iterator {
		Entry *at;

	public:
		explicit iterator(Entry *at) : at(at)
		{
			while (this->at->distance < 0)
				this->at++;
		}
		iterator &operator++() { return *this = iterator(at + 1); }
		bool operator==(const iterator &other) const = default;
		Value &operator*() const { return at->value; }
	};
	iterator begin() const { return iterator(entries); }
	iterator end() const { return iterator(entries + last()); }
	bool empty() const { return count == 0; }
	uint64_t size() const { return count; }

	/* Returns the value with a key, or NULL. */
	template <typename Key> Value *find(const Key &key)
	{
		uint64_t slot = slot_of(hash_of(key));
		for (int8_t d = 0; d < reach; d++) {
			Entry &e = entries[slot + (uint64_t)d];
			if (e.distance == d && key_of(e.value) == key)
				return &e.value;
		}
		return nullptr;
	}

	/* Adds a value, unless the table has its key. Returns the value in the table. */
	Value &insert(Value value)
	{
		auto key = key_of(value);
		if (Value *known = find(key))
			return *known;
		if ((float)(count + 1) > load * (float)(mask + 1))
			grow();
		while (!put(value))
			grow();
		count++;
		return *find(key);
	}

	template <typename Key> void erase(const Key &key)
	{
		uint64_t slot = slot_of(hash_of(key));
		for (int8_t d = 0; d < reach; d++) {
			Entry &e = entries[slot + (uint64_t)d];
			if (e.distance == d && key_of(e.value) == key) {
				e.distance = -1;
				e.value = Value{};
				count--;
				return;
			}
		}
	}
};

#endif

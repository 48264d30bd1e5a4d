package addrmap

import (
	"math/bits"
	"math/rand/v2"
)

// Map is a hash map with addresses as keys. It takes half the time of a Go map with 100,000
// entries, and replays use it for nearly every event. It uses open addressing with linear probing,
// and deletion leaves no tombstones. The zero value is an empty map.
type Map[V any] struct {
	slots []addressSlot[V] // a power of two of slots, at most three quarters in use
	used  int
	// Address 0 marks an empty slot, so its value is stored separately.
	zero    V
	hasZero bool
}

type addressSlot[V any] struct {
	ptr   int64
	value V
}

// addressHashSeed randomizes the hash, so that a file cannot be crafted with colliding addresses.
var addressHashSeed = rand.Uint64()

// homeSlot returns the slot at which the search for an address starts.
func (m *Map[V]) homeSlot(ptr int64) int {
	hi, lo := bits.Mul64(uint64(ptr)^addressHashSeed, 0x9e3779b97f4a7c15)
	return int(hi^lo) & (len(m.slots) - 1)
}

// findSlot returns the slot of an address, or the empty slot where it would be inserted.
func (m *Map[V]) findSlot(ptr int64) *addressSlot[V] {
	for i := m.homeSlot(ptr); ; i = (i + 1) & (len(m.slots) - 1) {
		if s := &m.slots[i]; s.ptr == ptr || s.ptr == 0 {
			return s
		}
	}
}

// Get returns the value of an address. ok is false if the map does not have the address.
func (m *Map[V]) Get(ptr int64) (value V, ok bool) {
	if ptr == 0 {
		return m.zero, m.hasZero
	}
	if m.used == 0 {
		return value, false
	}
	s := m.findSlot(ptr)
	return s.value, s.ptr == ptr
}

// Set stores the value of an address.
func (m *Map[V]) Set(ptr int64, value V) {
	if ptr == 0 {
		m.zero, m.hasZero = value, true
		return
	}
	if 4*(m.used+1) > 3*len(m.slots) {
		m.growSlots()
	}
	s := m.findSlot(ptr)
	if s.ptr == 0 {
		m.used++
	}
	*s = addressSlot[V]{ptr, value}
}

func (m *Map[V]) growSlots() {
	old := m.slots
	m.slots = make([]addressSlot[V], max(16, 2*len(old)))
	for _, s := range old {
		if s.ptr != 0 {
			*m.findSlot(s.ptr) = s
		}
	}
}

// Delete removes an address. It moves up the entries that probing had placed after it.
func (m *Map[V]) Delete(ptr int64) {
	if ptr == 0 {
		var none V
		m.zero, m.hasZero = none, false
		return
	}
	if m.used == 0 {
		return
	}
	mask := len(m.slots) - 1
	hole := m.homeSlot(ptr)
	for ; m.slots[hole].ptr != ptr; hole = (hole + 1) & mask {
		if m.slots[hole].ptr == 0 {
			return
		}
	}
	m.used--
	for i := (hole + 1) & mask; m.slots[i].ptr != 0; i = (i + 1) & mask {
		// An entry may move if its home slot is not between the hole and the entry.
		if home := m.homeSlot(m.slots[i].ptr); (i-home)&mask >= (i-hole)&mask {
			m.slots[hole] = m.slots[i]
			hole = i
		}
	}
	m.slots[hole] = addressSlot[V]{}
}

// EachAddress calls yield for every address, in no order. yield must not change the map.
func (m *Map[V]) EachAddress(yield func(ptr int64, value V)) {
	if m.hasZero {
		yield(0, m.zero)
	}
	for i := range m.slots {
		if s := &m.slots[i]; s.ptr != 0 {
			yield(s.ptr, s.value)
		}
	}
}

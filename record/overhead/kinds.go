//go:build linux

package overhead

// Kinds is a set of the kinds of calls that can be recorded in windows only.
type Kinds uint8

const (
	// Launches are kernel launches, without graph launches.
	Launches Kinds = 1 << iota
	// AllocatorEvents are the events of PyTorch's caching allocator.
	AllocatorEvents
)

// Has reports whether the set has all kinds of another one.
func (k Kinds) Has(of Kinds) bool { return k&of == of }

// List returns each kind of the set.
func (k Kinds) List() (list []Kinds) {
	for _, kind := range []Kinds{Launches, AllocatorEvents} {
		if k.Has(kind) {
			list = append(list, kind)
		}
	}
	return list
}

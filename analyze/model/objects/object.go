package objects

import "github.com/gpurec/gpurec/analyze/model/addrmap"

// Object is a live object.
type Object struct {
	SinceNs int64 // when the call that created the object returned, Unix ns
	Origin  int32 // origin of that call, a number in Timeline.Origins
	Kind    Kind
}

// ChangeKind is a kind of step of a replay: the creation of an object, or a way in which it ends.
type ChangeKind uint8

const (
	ChangeCreated   ChangeKind = iota // a call created the object
	ChangeDestroyed                   // a call destroyed the object
	// ChangeDestroyLost means that the driver returned the same handle again, so the object was
	// destroyed by a call that is not in the recording.
	ChangeDestroyLost
	// ChangeEndedWithContext means that the context of the object ended, and the process created more
	// objects afterwards.
	ChangeEndedWithContext
	// ChangeEndedByExit means that the process ended, or its context did and the process created nothing
	// more. The program did not destroy the object.
	ChangeEndedByExit
)

// Change is one step of a replay. A consumer must not keep the pointer. Changes of one kind of objects
// in one process come in order of time, except the ends of contexts: they come when the process
// creates another object, or ends.
type Change struct {
	Kind   ChangeKind
	AtNs   int64 // when the change takes effect, Unix ns
	Handle int64 // handle of the object; for references to primary contexts, the device
	Object Object
}

// Counts are numbers of calls of one kind of objects that a replay could not match.
type Counts struct {
	// Older counts destroyed objects whose creation is not in the recording: they are older than it,
	// or their creation was lost.
	Older int64
	// Unknown counts creations without a known handle. Their call is open, abandoned or unreadable.
	Unknown int64
	// LostDestroys counts objects that must have been destroyed by a call that is not in the recording.
	LostDestroys int64
	// Nested counts calls that repeat a call inside them or around them, as a wrapper does.
	Nested int64
}

// objectKey identifies an object. Handles are unique in a process among the live objects of a kind.
type objectKey struct {
	handle  int64
	process int32 // number of the process, as in origin.OriginTable
	kind    Kind
}

// liveSet holds the live objects of all processes, by number of the process and kind.
type liveSet []processObjects

// processObjects are the live objects of a process.
type processObjects [NumKinds]struct {
	// latest has the latest creation of each handle, earlier the creations before it of counted kinds.
	latest  addrmap.Map[Object]
	earlier map[int64][]Object
}

// ofProcess returns the objects of a process.
func (s *liveSet) ofProcess(number int32) *processObjects {
	for int(number) >= len(*s) {
		*s = append(*s, processObjects{})
	}
	return &(*s)[number]
}

// get returns the latest object of a handle.
func (s *liveSet) get(key objectKey) (Object, bool) {
	return s.ofProcess(key.process)[key.kind].latest.Get(key.handle)
}

// add adds an object. An object of a counted kind may be live already.
func (s *liveSet) add(key objectKey, o Object) {
	in := &s.ofProcess(key.process)[key.kind]
	if traits[key.kind].counted {
		if old, ok := in.latest.Get(key.handle); ok {
			if in.earlier == nil {
				in.earlier = make(map[int64][]Object)
			}
			in.earlier[key.handle] = append(in.earlier[key.handle], old)
		}
	}
	in.latest.Set(key.handle, o)
}

// take removes and returns the latest object of a handle.
func (s *liveSet) take(key objectKey) (Object, bool) {
	in := &s.ofProcess(key.process)[key.kind]
	o, ok := in.latest.Get(key.handle)
	if !ok {
		return o, false
	}
	if list := in.earlier[key.handle]; len(list) > 0 {
		in.latest.Set(key.handle, list[len(list)-1])
		in.earlier[key.handle] = list[:len(list)-1]
	} else {
		in.latest.Delete(key.handle)
	}
	return o, true
}

// each calls yield for all objects of a process, in no order. yield must not change the set.
func (p *processObjects) each(yield func(kind Kind, handle int64, o Object)) {
	for kind := range p {
		p[kind].latest.EachAddress(func(handle int64, o Object) {
			yield(Kind(kind), handle, o)
			for _, old := range p[kind].earlier[handle] {
				yield(Kind(kind), handle, old)
			}
		})
	}
}

// takeAll removes the objects of a process for which ends returns true, and returns them.
func (s *liveSet) takeAll(process int32, ends func(Kind, Object) bool) (list []endedObject) {
	s.ofProcess(process).each(func(kind Kind, handle int64, o Object) {
		if ends(kind, o) {
			list = append(list, endedObject{key: objectKey{handle, process, kind}, object: o})
		}
	})
	for i := range list {
		s.take(list[i].key)
	}
	return list
}

package timeline

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// A few calls that are no memory calls tell about memory: they are looked for once,
// among millions of launches, by the dictionary of names.

// APIKind is what such a call is.
type APIKind uint8

const (
	APINone APIKind = iota
	APICreateContext
	APIDestroyContext
	APIRetainPrimary
	APIReleasePrimary
	APIResetPrimary
	APIMemGetInfo
	APIPoolAttribute
	APIPoolOfDevice
	APIGraphAlloc
	APIMappedBuffer
	APIMappedArray
	APIAttachContext
	APIDetachContext
	// These are something else by what their row says, see refine.
	APIGraphNode
	APIPoolOfLocation
	APIDeviceUUID
)

var APINames = map[string]APIKind{
	"cuCtxCreate_v2": APICreateContext, "cuCtxCreate_v3": APICreateContext, "cuCtxCreate_v4": APICreateContext,
	"cuCtxCreate": APICreateContext, "cuGLCtxCreate": APICreateContext, "cuGLCtxCreate_v2": APICreateContext,
	"cuVDPAUCtxCreate": APICreateContext, "cuVDPAUCtxCreate_v2": APICreateContext,
	"cuCtxDestroy": APIDestroyContext, "cuCtxDestroy_v2": APIDestroyContext,
	"cuCtxAttach": APIAttachContext, "cuCtxDetach": APIDetachContext,
	"cuDevicePrimaryCtxRetain":  APIRetainPrimary,
	"cuDevicePrimaryCtxRelease": APIReleasePrimary, "cuDevicePrimaryCtxRelease_v2": APIReleasePrimary,
	"cuDevicePrimaryCtxReset": APIResetPrimary, "cuDevicePrimaryCtxReset_v2": APIResetPrimary,
	"cuMemGetInfo_v2":           APIMemGetInfo,
	"cuMemPoolGetAttribute":     APIPoolAttribute,
	"cuDeviceGetDefaultMemPool": APIPoolOfDevice, "cuDeviceGetMemPool": APIPoolOfDevice,
	"cuMemGetDefaultMemPool": APIPoolOfLocation, "cuMemGetMemPool": APIPoolOfLocation,
	"cuGraphAddMemAllocNode": APIGraphAlloc,
	"cuGraphAddNode":         APIGraphNode, "cuGraphAddNode_v2": APIGraphNode,
	"cuExternalMemoryGetMappedBuffer":         APIMappedBuffer,
	"cuExternalMemoryGetMappedMipmappedArray": APIMappedArray,
	"cuDeviceGetUuid":                         APIDeviceUUID, "cuDeviceGetUuid_v2": APIDeviceUUID,
}

// APICall is one of these calls; it succeeded.
type APICall struct {
	StartNs, EndNs int64
	context        int64 // current in the thread
	ptr, bytes     int64
	value          float64
	Pid, Device    int32
	Kind           APIKind
}

// toldUUID is the UUID that the driver told a process of one of its devices.
type toldUUID struct {
	pid, ordinal int32
	uuid         string
}

func (u toldUUID) compare(o toldUUID) int {
	return cmp.Or(cmp.Compare(u.pid, o.pid), cmp.Compare(u.ordinal, o.ordinal), cmp.Compare(u.uuid, o.uuid))
}

// APIScan collects them; the slices are used again.
type APIScan struct {
	Calls []APICall // in order of their start once all are read
	asked APICall   // the last cuMemGetInfo among them
	uuids map[toldUUID]bool

	name, memoryKind, message            format.Strings
	whats                                []APIKind // dictionary of names
	Start, Dur, Context, ptr, bytes, src []int64
	Pid, Device, result, flags           []int32
	value                                []float64
}

// add looks through a row group of calls.
func (s *APIScan) add(g *format.Group) {
	s.name = g.StringsInto("name", s.name)
	s.whats = s.whats[:0]
	any, nodes, pools := false, false, false
	for _, name := range s.name.Dict {
		what := APINames[catalog.BaseName(name)]
		s.whats = append(s.whats, what)
		any = any || what != APINone
		nodes, pools = nodes || what == APIGraphNode, pools || what == APIPoolOfLocation
	}
	if !any {
		return
	}
	s.Start, s.Dur = g.Int64("start_ns", s.Start), g.Int64("dur_ns", s.Dur)
	s.Context, s.ptr, s.bytes = g.Int64("context", s.Context), g.Int64("ptr", s.ptr), g.Int64("bytes", s.bytes)
	s.Pid, s.Device = g.Int32("pid", s.Pid), g.Int32("device", s.Device)
	if slices.Contains(s.whats, APIDeviceUUID) {
		s.message = g.StringsInto("message", s.message)
		if s.uuids == nil {
			s.uuids = make(map[toldUUID]bool)
		}
	}
	s.result, s.flags, s.value = g.Int32("result", s.result), g.Int32("flags", s.flags), g.Float64("value", s.value)
	if nodes {
		s.memoryKind = g.StringsInto("memory_kind", s.memoryKind)
	}
	if pools {
		s.src = g.Int64("src_ptr", s.src)
	}
	const unknown = format.FlagOpen | format.FlagAbandoned | format.FlagUnreadable
	for i, name := range s.name.Index {
		what := s.refine(s.whats[name], i)
		if what == APINone || s.result[i] != 0 || s.flags[i]&unknown != 0 {
			continue
		}
		c := APICall{
			StartNs: s.Start[i],
			EndNs:   units.EndOf(s.Start[i], s.Dur[i]),
			context: s.Context[i],
			ptr:     s.ptr[i],
			bytes:   s.bytes[i],
			value:   s.value[i],
			Pid:     s.Pid[i],
			Device:  s.Device[i],
			Kind:    what,
		}
		if what == APIDeviceUUID {
			s.uuids[toldUUID{c.Pid, c.Device, s.message.At(i)}] = true
			continue
		}
		if what == APIMemGetInfo {
			if s.asked.sameAnswer(&c) {
				continue // some programs ask all the time
			}
			s.asked = c
		}
		s.Calls = append(s.Calls, c)
	}
}

// refine returns what row i is where the name of the function does not say it.
func (s *APIScan) refine(what APIKind, i int) APIKind {
	const device = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	switch {
	case what == APIGraphNode && s.memoryKind.At(i) == format.MemoryGraph && s.bytes[i] > 0: // a free node has no size
		return APIGraphAlloc
	case what == APIPoolOfLocation && s.src[i] == device:
		return APIPoolOfDevice
	case what == APIGraphNode, what == APIPoolOfLocation:
		return APINone
	}
	return what
}

// sameAnswer reports whether a call was told the same as the one before it.
func (c *APICall) sameAnswer(o *APICall) bool {
	return c.Kind == o.Kind && c.Pid == o.Pid && c.Device == o.Device && c.context == o.context && c.bytes == o.bytes &&
		c.value == o.value
}

func (s *APIScan) sort() {
	slices.SortStableFunc(s.Calls, func(a, b APICall) int { return cmp.Compare(a.StartNs, b.StartNs) })
}

// contextKey names a context; handles are of one process.
type contextKey struct {
	pid     int32
	context int64
}

// SeveralDevices marks a context whose handle was used for more than one device.
const SeveralDevices = -2

// contextDevices knows on which device a context is.
type contextDevices map[contextKey]int32

func (d contextDevices) learn(key contextKey, device int32) {
	if key.context == 0 || device < 0 {
		return
	}
	if known, ok := d[key]; ok && known != device {
		device = SeveralDevices
	}
	d[key] = device
}

// learnContexts notes the devices of contexts: from the calls that make them, and if
// some calls do not say theirs, from all others in the same context.
func (t *Timeline) learnContexts() error {
	t.contexts = make(contextDevices)
	for i := range t.API.Calls {
		if c := &t.API.Calls[i]; c.Kind == APICreateContext || c.Kind == APIRetainPrimary {
			t.contexts.learn(contextKey{c.Pid, c.ptr}, c.Device)
		}
	}
	if !t.Scan.unknownDevice {
		return nil
	}
	s := &t.API
	for _, spans := range [][]Span{t.Memory, t.Calls} {
		for _, sp := range spans {
			s.Pid, s.Device = sp.Group.Int32("pid", s.Pid), sp.Group.Int32("device", s.Device)
			s.Context = sp.Group.Int64("context", s.Context)
			if err := sp.Group.Err(); err != nil {
				return err
			}
			last, lastDevice := contextKey{}, int32(-1)
			for i, context := range s.Context {
				key := contextKey{s.Pid[i], context}
				if context == 0 || s.Device[i] < 0 || key == last && s.Device[i] == lastDevice {
					continue
				}
				last, lastDevice = key, s.Device[i]
				t.contexts.learn(key, lastDevice)
			}
		}
	}
	return nil
}

// DeviceOf returns the device of a call. A process that is recorded while it runs has
// made its contexts before, so that a thread's device may not be known at first; other
// calls in the same context tell it, and a machine with one GPU has no other.
func (t *Timeline) DeviceOf(pid int32, context int64, device int32) int32 {
	if device >= 0 {
		return device
	}
	if d, ok := t.contexts[contextKey{pid, context}]; ok && d >= 0 {
		return d
	}
	return t.Facts.OnlyDevice
}

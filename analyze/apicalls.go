package analyze

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// A few calls that are no memory calls tell about memory: they are looked for once,
// among millions of launches, by the dictionary of names.

// apiWhat is what such a call is.
type apiWhat uint8

const (
	apiNone apiWhat = iota
	apiCreateContext
	apiDestroyContext
	apiRetainPrimary
	apiReleasePrimary
	apiResetPrimary
	apiMemGetInfo
	apiPoolAttribute
	apiPoolOfDevice
	apiGraphAlloc
	apiMappedBuffer
	apiMappedArray
	apiAttachContext
	apiDetachContext
	// These are something else by what their row says, see refine.
	apiGraphNode
	apiPoolOfLocation
	apiDeviceUUID
)

var apiNames = map[string]apiWhat{
	"cuCtxCreate_v2": apiCreateContext, "cuCtxCreate_v3": apiCreateContext, "cuCtxCreate_v4": apiCreateContext,
	"cuCtxCreate": apiCreateContext, "cuGLCtxCreate": apiCreateContext, "cuGLCtxCreate_v2": apiCreateContext,
	"cuVDPAUCtxCreate": apiCreateContext, "cuVDPAUCtxCreate_v2": apiCreateContext,
	"cuCtxDestroy": apiDestroyContext, "cuCtxDestroy_v2": apiDestroyContext,
	"cuCtxAttach": apiAttachContext, "cuCtxDetach": apiDetachContext,
	"cuDevicePrimaryCtxRetain":  apiRetainPrimary,
	"cuDevicePrimaryCtxRelease": apiReleasePrimary, "cuDevicePrimaryCtxRelease_v2": apiReleasePrimary,
	"cuDevicePrimaryCtxReset": apiResetPrimary, "cuDevicePrimaryCtxReset_v2": apiResetPrimary,
	"cuMemGetInfo_v2":           apiMemGetInfo,
	"cuMemPoolGetAttribute":     apiPoolAttribute,
	"cuDeviceGetDefaultMemPool": apiPoolOfDevice, "cuDeviceGetMemPool": apiPoolOfDevice,
	"cuMemGetDefaultMemPool": apiPoolOfLocation, "cuMemGetMemPool": apiPoolOfLocation,
	"cuGraphAddMemAllocNode": apiGraphAlloc,
	"cuGraphAddNode":         apiGraphNode, "cuGraphAddNode_v2": apiGraphNode,
	"cuExternalMemoryGetMappedBuffer":         apiMappedBuffer,
	"cuExternalMemoryGetMappedMipmappedArray": apiMappedArray,
	"cuDeviceGetUuid":                         apiDeviceUUID, "cuDeviceGetUuid_v2": apiDeviceUUID,
}

// apiCall is one of these calls; it succeeded.
type apiCall struct {
	startNs, endNs int64
	context        int64 // current in the thread
	ptr, bytes     int64
	value          float64
	pid, device    int32
	what           apiWhat
}

// toldUUID is the UUID that the driver told a process of one of its devices.
type toldUUID struct {
	pid, ordinal int32
	uuid         string
}

func (u toldUUID) compare(o toldUUID) int {
	return cmp.Or(cmp.Compare(u.pid, o.pid), cmp.Compare(u.ordinal, o.ordinal), cmp.Compare(u.uuid, o.uuid))
}

// apiScan collects them; the slices are used again.
type apiScan struct {
	calls []apiCall // in order of their start once all are read
	asked apiCall   // the last cuMemGetInfo among them
	uuids map[toldUUID]bool

	name, memoryKind, message            format.Strings
	whats                                []apiWhat // dictionary of names
	start, dur, context, ptr, bytes, src []int64
	pid, device, result, flags           []int32
	value                                []float64
}

// add looks through a row group of calls.
func (s *apiScan) add(g *format.Group) {
	s.name = g.StringsInto("name", s.name)
	s.whats = s.whats[:0]
	any, nodes, pools := false, false, false
	for _, name := range s.name.Dict {
		what := apiNames[catalog.BaseName(name)]
		s.whats = append(s.whats, what)
		any = any || what != apiNone
		nodes, pools = nodes || what == apiGraphNode, pools || what == apiPoolOfLocation
	}
	if !any {
		return
	}
	s.start, s.dur = g.Int64("start_ns", s.start), g.Int64("dur_ns", s.dur)
	s.context, s.ptr, s.bytes = g.Int64("context", s.context), g.Int64("ptr", s.ptr), g.Int64("bytes", s.bytes)
	s.pid, s.device = g.Int32("pid", s.pid), g.Int32("device", s.device)
	if slices.Contains(s.whats, apiDeviceUUID) {
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
		if what == apiNone || s.result[i] != 0 || s.flags[i]&unknown != 0 {
			continue
		}
		c := apiCall{
			startNs: s.start[i], endNs: units.EndOf(s.start[i], s.dur[i]), context: s.context[i], ptr: s.ptr[i], bytes: s.bytes[i],
			value: s.value[i], pid: s.pid[i], device: s.device[i], what: what,
		}
		if what == apiDeviceUUID {
			s.uuids[toldUUID{c.pid, c.device, s.message.At(i)}] = true
			continue
		}
		if what == apiMemGetInfo {
			if s.asked.sameAnswer(&c) {
				continue // some programs ask all the time
			}
			s.asked = c
		}
		s.calls = append(s.calls, c)
	}
}

// refine returns what row i is where the name of the function does not say it.
func (s *apiScan) refine(what apiWhat, i int) apiWhat {
	const device = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	switch {
	case what == apiGraphNode && s.memoryKind.At(i) == format.MemoryGraph && s.bytes[i] > 0: // a free node has no size
		return apiGraphAlloc
	case what == apiPoolOfLocation && s.src[i] == device:
		return apiPoolOfDevice
	case what == apiGraphNode, what == apiPoolOfLocation:
		return apiNone
	}
	return what
}

// sameAnswer reports whether a call was told the same as the one before it.
func (c *apiCall) sameAnswer(o *apiCall) bool {
	return c.what == o.what && c.pid == o.pid && c.device == o.device && c.context == o.context && c.bytes == o.bytes && c.value == o.value
}

func (s *apiScan) sort() {
	slices.SortStableFunc(s.calls, func(a, b apiCall) int { return cmp.Compare(a.startNs, b.startNs) })
}

// contextKey names a context; handles are of one process.
type contextKey struct {
	pid     int32
	context int64
}

// severalDevices marks a context whose handle was used for more than one device.
const severalDevices = -2

// contextDevices knows on which device a context is.
type contextDevices map[contextKey]int32

func (d contextDevices) learn(key contextKey, device int32) {
	if key.context == 0 || device < 0 {
		return
	}
	if known, ok := d[key]; ok && known != device {
		device = severalDevices
	}
	d[key] = device
}

// learnContexts notes the devices of contexts: from the calls that make them, and if
// some calls do not say theirs, from all others in the same context.
func (t *Timeline) learnContexts() error {
	t.contexts = make(contextDevices)
	for i := range t.api.calls {
		if c := &t.api.calls[i]; c.what == apiCreateContext || c.what == apiRetainPrimary {
			t.contexts.learn(contextKey{c.pid, c.ptr}, c.device)
		}
	}
	if !t.scan.unknownDevice {
		return nil
	}
	s := &t.api
	for _, spans := range [][]span{t.memory, t.calls} {
		for _, sp := range spans {
			s.pid, s.device = sp.group.Int32("pid", s.pid), sp.group.Int32("device", s.device)
			s.context = sp.group.Int64("context", s.context)
			if err := sp.group.Err(); err != nil {
				return err
			}
			last, lastDevice := contextKey{}, int32(-1)
			for i, context := range s.context {
				key := contextKey{s.pid[i], context}
				if context == 0 || s.device[i] < 0 || key == last && s.device[i] == lastDevice {
					continue
				}
				last, lastDevice = key, s.device[i]
				t.contexts.learn(key, lastDevice)
			}
		}
	}
	return nil
}

// deviceOf returns the device of a call. A process that is recorded while it runs has
// made its contexts before, so that a thread's device may not be known at first; other
// calls in the same context tell it, and a machine with one GPU has no other.
func (t *Timeline) deviceOf(pid int32, context int64, device int32) int32 {
	if device >= 0 {
		return device
	}
	if d, ok := t.contexts[contextKey{pid, context}]; ok && d >= 0 {
		return d
	}
	return t.facts.onlyDevice
}

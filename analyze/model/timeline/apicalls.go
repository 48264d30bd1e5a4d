package timeline

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Some calls outside the memory class matter for memory. The scan finds them among millions of
// launches by the dictionary of function names.

// APIKind is the kind of a CUDA API call that matters for memory without being a memory call, such
// as cuCtxDestroy.
type APIKind uint8

const (
	APINone           APIKind = iota // a call without meaning for memory
	APICreateContext                 // the call creates a context
	APIDestroyContext                // the call destroys a context
	APIRetainPrimary                 // the call retains a device's primary context
	APIReleasePrimary                // the call releases a device's primary context
	APIResetPrimary                  // the call resets a device's primary context
	APIMemGetInfo                    // the call reads the free memory of a device
	APIPoolAttribute                 // the call reads an attribute of a memory pool
	APIPoolOfDevice                  // the call returns the memory pool of a device
	APIGraphAlloc                    // the call adds a graph node that allocates memory
	APIMappedBuffer                  // the call maps a buffer of another API
	APIMappedArray                   // the call maps an array of another API
	APIAttachContext                 // the call adds a reference to a context (cuCtxAttach)
	APIDetachContext                 // the call drops a reference to a context (cuCtxDetach)
	// APIGraphNode and the kinds below depend on other columns of the row, see refine.
	APIGraphNode      // the call adds a graph node of any type
	APIPoolOfLocation // the call returns the memory pool of a location
	APIDeviceUUID     // the call returns the UUID of a device
)

// APIKindsByFunction maps CUDA functions, without suffixes such as _ptsz, to their kind.
var APIKindsByFunction = map[string]APIKind{
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

// APICall is a successful call of an APIKind. Times are Unix ns.
type APICall struct {
	StartNs, EndNs int64
	context        int64 // handle of the thread's current context
	ptr, bytes     int64
	value          float64
	Pid, Device    int32
	Kind           APIKind
}

// deviceUUID is the UUID that the driver returned to a process for a device ordinal.
type deviceUUID struct {
	pid, ordinal int32
	uuid         string
}

func (u deviceUUID) compare(o deviceUUID) int {
	return cmp.Or(cmp.Compare(u.pid, o.pid), cmp.Compare(u.ordinal, o.ordinal), cmp.Compare(u.uuid, o.uuid))
}

// APIScan collects the APICalls of a recording. The column slices are reused.
type APIScan struct {
	Calls          []APICall // collected calls, in order of their start after the scan
	lastMemGetInfo APICall   // the latest cuMemGetInfo call
	uuids          map[deviceUUID]bool

	name, memoryKind, message            format.Strings
	kinds                                []APIKind // kind of each function name in the dictionary
	Start, Dur, Context, ptr, bytes, src []int64
	Pid, Device, result, flags           []int32
	value                                []float64
}

// addGroup collects the calls of one row group.
func (s *APIScan) addGroup(g *format.Group) {
	s.name = g.StringsInto("name", s.name)
	s.kinds = s.kinds[:0]
	any, nodes, pools := false, false, false
	for _, name := range s.name.Dict {
		kind := APIKindsByFunction[catalog.BaseFunctionName(name)]
		s.kinds = append(s.kinds, kind)
		any = any || kind != APINone
		nodes, pools = nodes || kind == APIGraphNode, pools || kind == APIPoolOfLocation
	}
	if !any {
		return
	}
	s.Start, s.Dur = g.Int64("start_ns", s.Start), g.Int64("dur_ns", s.Dur)
	s.Context, s.ptr, s.bytes = g.Int64("context", s.Context), g.Int64("ptr", s.ptr), g.Int64("bytes", s.bytes)
	s.Pid, s.Device = g.Int32("pid", s.Pid), g.Int32("device", s.Device)
	if slices.Contains(s.kinds, APIDeviceUUID) {
		s.message = g.StringsInto("message", s.message)
		if s.uuids == nil {
			s.uuids = make(map[deviceUUID]bool)
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
		kind := s.refineKind(s.kinds[name], i)
		if kind == APINone || s.result[i] != 0 || s.flags[i]&unknown != 0 {
			continue
		}
		c := APICall{
			StartNs: s.Start[i],
			EndNs:   units.EndOfRange(s.Start[i], s.Dur[i]),
			context: s.Context[i],
			ptr:     s.ptr[i],
			bytes:   s.bytes[i],
			value:   s.value[i],
			Pid:     s.Pid[i],
			Device:  s.Device[i],
			Kind:    kind,
		}
		if kind == APIDeviceUUID {
			s.uuids[deviceUUID{c.Pid, c.Device, s.message.At(i)}] = true
			continue
		}
		if kind == APIMemGetInfo {
			if s.lastMemGetInfo.hasSameResult(&c) {
				// the program got the same values before: some call cuMemGetInfo constantly
				continue
			}
			s.lastMemGetInfo = c
		}
		s.Calls = append(s.Calls, c)
	}
}

// refineKind returns the kind of row i for functions whose kind depends on other columns.
func (s *APIScan) refineKind(kind APIKind, i int) APIKind {
	const device = 1 // CU_MEM_LOCATION_TYPE_DEVICE
	switch {
	// a node that frees memory has no size
	case kind == APIGraphNode && s.memoryKind.At(i) == format.MemoryGraph && s.bytes[i] > 0:
		return APIGraphAlloc
	case kind == APIPoolOfLocation && s.src[i] == device:
		return APIPoolOfDevice
	case kind == APIGraphNode, kind == APIPoolOfLocation:
		return APINone
	}
	return kind
}

// hasSameResult reports whether two calls returned the same values.
func (c *APICall) hasSameResult(o *APICall) bool {
	return c.Kind == o.Kind && c.Pid == o.Pid && c.Device == o.Device && c.context == o.context && c.bytes == o.bytes &&
		c.value == o.value
}

func (s *APIScan) sortCalls() {
	slices.SortStableFunc(s.Calls, func(a, b APICall) int { return cmp.Compare(a.StartNs, b.StartNs) })
}

// contextKey identifies a context. Handles are unique within a process.
type contextKey struct {
	pid     int32
	context int64
}

// AmbiguousDevice marks a context handle that was used for more than one device.
const AmbiguousDevice = -2

// contextDevices maps contexts to their device.
type contextDevices map[contextKey]int32

func (d contextDevices) learnDevice(key contextKey, device int32) {
	if key.context == 0 || device < 0 {
		return
	}
	if known, ok := d[key]; ok && known != device {
		device = AmbiguousDevice
	}
	d[key] = device
}

// learnContexts finds the device of each context from the calls that create contexts. If some calls
// lack a device, it also uses all other calls in the same context.
func (t *Timeline) learnContexts() error {
	for i := range t.API.Calls {
		if c := &t.API.Calls[i]; c.Kind == APICreateContext || c.Kind == APIRetainPrimary {
			t.contexts.learnDevice(contextKey{c.Pid, c.ptr}, c.Device)
		}
	}
	if !t.Scan.unknownDevice {
		return nil
	}
	s := &t.API
	for _, spans := range [][]Span{t.Memory[t.learned.memory:], t.Calls[t.learned.calls:]} {
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
				t.contexts.learnDevice(key, lastDevice)
			}
		}
	}
	t.learned = scannedSpans{len(t.Memory), len(t.Calls)}
	return nil
}

// DeviceOfCall returns the device of a call. A call may lack its device if the process created its
// contexts before the recording. Then the device comes from other calls in the same context, or is
// the only GPU that the process sees, or the machine's only GPU. It is -1 if unknown.
func (t *Timeline) DeviceOfCall(pid int32, context int64, device int32) int32 {
	if device >= 0 {
		return device
	}
	if d, ok := t.contexts[contextKey{pid, context}]; ok && d >= 0 {
		return d
	}
	if p := t.Facts.Processes[pid]; p.HasOneDevice {
		return p.Devices[0].Ordinal
	}
	return t.Facts.OnlyDevice
}

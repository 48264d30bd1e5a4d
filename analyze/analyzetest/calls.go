package analyzetest

import "github.com/gpurec/gpurec/format"

// AddMemoryCall adds a memory call of any kind. It takes 2 ns. Times in this package are ns from
// the start of the recording.
func (recording *TestRecording) AddMemoryCall(kind, memory string, at, ptr, bytes int64) *format.Row {
	r := recording.AddCall(kind, kind+" "+memory, at, 2)
	r.MemoryKind, r.Ptr, r.Bytes = memory, ptr, bytes
	return r
}

// AddMemCreate adds a cuMemCreate that returns a handle of physical memory.
func (recording *TestRecording) AddMemCreate(at, handle, bytes int64) *format.Row {
	return recording.AddMemoryCall(format.KindAlloc, format.MemoryPhysical, at, handle, bytes)
}

// AddMemRelease adds a cuMemRelease of a handle.
func (recording *TestRecording) AddMemRelease(at, handle int64) *format.Row {
	return recording.AddMemoryCall(format.KindFree, format.MemoryPhysical, at, handle, 0)
}

// AddMemMap adds a cuMemMap of a handle to the address va.
func (recording *TestRecording) AddMemMap(at, va, bytes, handle int64) *format.Row {
	r := recording.AddMemoryCall(format.KindMap, "", at, va, bytes)
	r.SrcPtr = handle
	return r
}

// AddMemUnmap adds a cuMemUnmap of the addresses at va.
func (recording *TestRecording) AddMemUnmap(at, va, bytes int64) *format.Row {
	return recording.AddMemoryCall(format.KindUnmap, "", at, va, bytes)
}

// AddAPICall adds a call about a context, a device or another handle.
func (recording *TestRecording) AddAPICall(name string, at, ptr int64, device int32) *format.Row {
	r := recording.AddCall(format.KindAPI, name, at, 2)
	r.Ptr, r.Device = ptr, device
	return r
}

// SetContext sets the context and the device of a call.
func SetContext(r *format.Row, context int64, device int32) *format.Row {
	r.Context, r.Device = context, device
	return r
}

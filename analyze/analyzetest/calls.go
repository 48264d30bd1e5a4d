package analyzetest

import "github.com/gpurec/gpurec/format"

// Memory adds a memory call of any kind. It takes 2 ns. Times in this package are ns from the start
// of the recording.
func (tp *Tape) Memory(kind, memory string, at, ptr, bytes int64) *format.Row {
	r := tp.Call(kind, kind+" "+memory, at, 2)
	r.MemoryKind, r.Ptr, r.Bytes = memory, ptr, bytes
	return r
}

// Create adds a cuMemCreate that returns a handle of physical memory.
func (tp *Tape) Create(at, handle, bytes int64) *format.Row {
	return tp.Memory(format.KindAlloc, format.MemoryPhysical, at, handle, bytes)
}

// Release adds a cuMemRelease of a handle.
func (tp *Tape) Release(at, handle int64) *format.Row {
	return tp.Memory(format.KindFree, format.MemoryPhysical, at, handle, 0)
}

// MapAt adds a cuMemMap of a handle to the address va.
func (tp *Tape) MapAt(at, va, bytes, handle int64) *format.Row {
	r := tp.Memory(format.KindMap, "", at, va, bytes)
	r.SrcPtr = handle
	return r
}

// Unmap adds a cuMemUnmap of the addresses at va.
func (tp *Tape) Unmap(at, va, bytes int64) *format.Row {
	return tp.Memory(format.KindUnmap, "", at, va, bytes)
}

// API adds a call about a context, a device or another handle.
func (tp *Tape) API(name string, at, ptr int64, device int32) *format.Row {
	r := tp.Call(format.KindAPI, name, at, 2)
	r.Ptr, r.Device = ptr, device
	return r
}

// InContext sets the context and the device of a call.
func InContext(r *format.Row, context int64, device int32) *format.Row {
	r.Context, r.Device = context, device
	return r
}

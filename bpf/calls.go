package bpf

// Call is one row of the call table: a probed function, the kind of event that it becomes in the
// recording, and the positions of its arguments. To record one more function, add a row to Calls.
type Call struct {
	// Name is the exported symbol with its version suffix. Its per-thread-stream variants
	// (Name_ptds, Name_ptsz) have the same arguments and are probed, too. Other versions of a
	// function have their own rows, because their arguments may differ.
	Name string
	// Kind is the event's kind in the recording, one of the Kind constants of package format.
	Kind string
	// Memory is the memory_kind column of alloc and free events.
	Memory string
	// Copy is the direction of a memcpy function with a fixed direction: HtoD, DtoH, DtoD,
	// HtoA, …, with A for arrays. "": the direction depends on the arguments.
	Copy string

	Class  CudaCallClass
	Decode CudaCallDecode
	Effect CudaCallEffect
	// Meaning selects how Ptr, Bytes and Src are written to columns.
	Meaning Meaning
	// CountOnly is set for frequent queries: calls are counted and send no event.
	CountOnly bool
	// Getter is set for frequent functions without side effects. Their probes are removed
	// during the recording if they are called too often.
	Getter bool

	// Ptr to Value locate the members of an event. Bytes is multiplied by the argument Times
	// and the constant Scale, if these are set.
	Ptr, Bytes, Times, Stream, Src, Value CudaArgSpec
	Scale                                 uint8
}

// Meaning selects how the members of a CudaEvent are written to the columns of a recording. A
// CudaEvent has one handle, one number and a second handle; a recording has more columns.
type Meaning uint8

// Meanings of the members Ptr, Bytes and Src of a CudaEvent.
const (
	Plain           Meaning = iota // the columns ptr, bytes and src_ptr
	Launch                         // src is the launched function
	NewFunction                    // ptr is a new function, bytes its module, src its name
	OfFunction                     // ptr is a function handle
	OnDevice                       // bytes is a device ordinal
	FreeOfTotal                    // bytes is the free memory, src the total: column value
	ElapsedTime                    // bytes is a float32 in milliseconds: column value
	LaunchList                     // src is the first launch's function, bytes their number
	KernelNode                     // bytes is a kernel node's function; grid, block
	GraphNode                      // depends on CudaEvent.NodeType
	Pitched                        // bytes is the returned pitch, src height, value width
	Array                          // bytes is the width; grid and block: see enum call_decode
	CopyByType                     // grid[2] and block[0]: memory types of source, target
	UUID                           // grid and block hold a device UUID of 16 bytes
	AllocatorEvent                 // grid and block hold the action and the totals
	AllocatorReport                // the same without action; bytes < 0 for a free
)

// arg reads integer argument i (counted from 0) with 8 bytes.
func arg(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_VALUE), Index: i, Size: 8}
}

// arg32 reads integer argument i with 4 bytes; the upper half of its register is undefined.
func arg32(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_VALUE), Index: i, Size: 4}
}

// out reads, at return, the 8-byte value that argument i points to.
func out(i uint8) CudaArgSpec { return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 8} }

// in reads, at entry, 8 bytes at an offset in the structure that argument i points to.
func in(i uint8, offset uint16) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_POINTEE), Index: i, Size: 8, Offset: offset}
}

// in32 reads, at entry, 4 bytes at an offset in the structure that argument i points to.
func in32(i uint8, offset uint16) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_POINTEE), Index: i, Size: 4, Offset: offset}
}

// outAt reads, at return, 8 bytes at an offset in the structure that argument i points to.
func outAt(i uint8, offset uint16) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 8, Offset: offset}
}

// out32 reads, at return, the 4-byte value that argument i points to.
func out32(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 4}
}

// variants are the suffixes of a function's exported names. Programs that were compiled with
// per-thread default streams call the names with a suffix.
var variants = [...]string{"", "_ptds", "_ptsz"}

// Symbol is an exported function name that can be probed, and its attach cookie.
type Symbol struct {
	Name   string
	Cookie uint16
}

// CookiesPerCall is the number of attach cookies of a row of Calls, one for each variant.
const CookiesPerCall = len(variants)

// Symbols returns all exported names of the functions in Calls.
func Symbols() []Symbol {
	symbols := make([]Symbol, 0, len(Calls)*len(variants))
	for i := range Calls {
		for v, suffix := range variants {
			symbols = append(symbols, Symbol{Name: Calls[i].Name + suffix, Cookie: uint16(i*len(variants) + v)})
		}
	}
	return symbols
}

// ByCookie returns the row of Calls or Allocators for an attach cookie (CudaEvent.Call), the
// exported name of the function, and whether it is a per-thread-stream variant. For an invalid
// cookie, ok is false.
func ByCookie(cookie uint16) (call *Call, name string, perThreadStream, ok bool) {
	row, v := int(cookie)/len(variants), int(cookie)%len(variants)
	if i := int(cookie) - NumCookies(); i >= 0 && i < len(Allocators) {
		return &Allocators[i], Allocators[i].Name, false, true
	}
	if row >= len(Calls) {
		return nil, "", false, false
	}
	return &Calls[row], Calls[row].Name + variants[v], v != 0, true
}

// NumCookies returns the number of cookies of Calls. Cookies count from 0; those of Allocators
// follow.
func NumCookies() int { return len(Calls) * len(variants) }

// Spec returns the row in the layout that the BPF programs read.
func (c *Call) Spec() CudaCallSpec {
	spec := CudaCallSpec{
		Class: uint8(c.Class), Decode: uint8(c.Decode), Effect: uint8(c.Effect), Scale: c.Scale,
		Ptr: c.Ptr, Bytes: c.Bytes, Times: c.Times, Stream: c.Stream, Src: c.Src, Value: c.Value,
	}
	if c.CountOnly {
		spec.CountOnly = 1
	}
	spec.ReturnProbe = uint8(c.returnProbe())
	if c.Getter {
		spec.IsGetter = 1
	}
	return spec
}

// NeedsReturn reports whether the function's return is probed. Functions that are only counted,
// without another effect, and functions of allocators need no return probe.
func (c *Call) NeedsReturn() bool {
	return c.returnProbe() != CudaReturnProbeRETURN_NEVER && (!c.CountOnly || c.Effect != CudaCallEffectEFFECT_NONE)
}

// SamplesReturns reports whether the return probes of the function may be removed for a share of
// the time, because its calls are too frequent. That is so for kernel launches.
func (c *Call) SamplesReturns() bool { return c.returnProbe() == CudaReturnProbeRETURN_SAMPLED }

func (c *Call) returnProbe() CudaReturnProbe {
	switch {
	case c.Class == CudaCallClassCLASS_ALLOCATOR:
		return CudaReturnProbeRETURN_NEVER
	case c.Effect == CudaCallEffectEFFECT_LAUNCH:
		return CudaReturnProbeRETURN_SAMPLED
	}
	return CudaReturnProbeRETURN_ALWAYS
}

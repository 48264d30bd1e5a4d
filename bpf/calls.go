package bpf

// Call is one row of the table of probed calls: a driver API function, what kind of
// row it becomes, and where its arguments are. Adding a function to gpurec is adding
// a row to Calls.
type Call struct {
	// Name is the exported symbol with its version suffix. Its per-thread-stream
	// variants (Name_ptds, Name_ptsz) have the same arguments and are probed too;
	// other versions of a function have rows of their own, because their arguments
	// may differ.
	Name string
	// Kind is the kind of row in the recording, one of the Kind constants of
	// package format.
	Kind string
	// Memory is the memory_kind of alloc and free rows.
	Memory string
	// Copy is the direction of memcpy rows where the function says it: HtoD, DtoH, DtoD,
	// HtoA, …, with A for arrays.
	Copy string

	Class  CudaCallClass
	Decode CudaCallDecode
	Effect CudaCallEffect
	// Meaning says how the row is made where ptr, bytes and src are not just that.
	Meaning Meaning
	// CountOnly is for hot queries: calls are counted, not recorded.
	CountOnly bool
	// Getter is for calls that change nothing and that programs may make as often as
	// launches: they are no longer probed when they come too often.
	Getter bool

	// Where the members of an event come from. Bytes is multiplied by Times (an
	// argument) and Scale (a constant) where they are set.
	Ptr, Bytes, Times, Stream, Src, Value CudaArgSpec
	Scale                                 uint8
}

// Meaning says what the members of an event stand for. The kernel half has one place
// for a handle, one for a number and one for a second handle; the row has more.
type Meaning uint8

// Meanings of ptr, bytes and src.
const (
	Plain           Meaning = iota // ptr, bytes, src_ptr
	Launch                         // src is the function
	NewFunction                    // ptr is a new function handle, bytes the module it is from, src its name
	OfFunction                     // ptr is a function handle
	OnDevice                       // bytes is a device ordinal
	FreeOfTotal                    // bytes is free memory, src the total: the row's value
	ElapsedTime                    // bytes is a float, milliseconds: the row's value
	LaunchList                     // src is the function of the first launch, bytes the number of launches
	KernelNode                     // bytes is a function, with a grid as of a launch
	GraphNode                      // by the type of the node, see CudaEvent.NodeType
	Pitched                        // bytes is the pitch that came back, src the height, value the width
	Array                          // bytes is the width, times what grid and block hold
	CopyByType                     // the direction is in the memory types in grid[2] and block[0]
	UUID                           // grid and block hold the 16 bytes of a device's UUID
	AllocatorEvent                 // grid and block hold the action and the allocator's totals
	AllocatorReport                // the same without an action: bytes are negative if they are given back
)

// arg is integer argument i (counted from 0), 8 bytes wide.
func arg(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_VALUE), Index: i, Size: 8}
}

// arg32 is a 4 byte integer argument; the upper half of its register is undefined.
func arg32(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_VALUE), Index: i, Size: 4}
}

// out is the 8 byte value that the call stores where argument i points to.
func out(i uint8) CudaArgSpec { return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 8} }

// in and in32 are values of 8 and 4 bytes in the structure that argument i points to.
func in(i uint8, offset uint16) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_POINTEE), Index: i, Size: 8, Offset: offset}
}

func in32(i uint8, offset uint16) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_POINTEE), Index: i, Size: 4, Offset: offset}
}

// outAt is an 8 byte value that the call stores in the structure argument i points to.
func outAt(i uint8, offset uint16) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 8, Offset: offset}
}

// out32 is a 4 byte out value.
func out32(i uint8) CudaArgSpec {
	return CudaArgSpec{From: uint8(CudaArgFromARG_OUT), Index: i, Size: 4}
}

// variants are the suffixes under which a function is exported again for programs
// that were compiled with per-thread default streams.
var variants = [...]string{"", "_ptds", "_ptsz"}

// Symbol is one exported function name that may be probed, and its attach cookie.
type Symbol struct {
	Name   string
	Cookie uint16
}

// CookiesPerCall is how many cookies a row of Calls has: one for each variant.
const CookiesPerCall = len(variants)

// Symbols returns every name that the table stands for.
func Symbols() []Symbol {
	symbols := make([]Symbol, 0, len(Calls)*len(variants))
	for i := range Calls {
		for v, suffix := range variants {
			symbols = append(symbols, Symbol{Name: Calls[i].Name + suffix, Cookie: uint16(i*len(variants) + v)})
		}
	}
	return symbols
}

// ByCookie returns the row of Calls or Allocators that a cookie (CudaEvent.Call) names, the exported name
// of the call and whether it is a per-thread-stream variant; ok is false for a
// number that is no cookie.
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

// NumCookies is the number of cookies of Calls; they count from 0, and those of Allocators follow.
func NumCookies() int { return len(Calls) * len(variants) }

// Spec returns the row as the BPF programs need it.
func (c *Call) Spec() CudaCallSpec {
	spec := CudaCallSpec{
		Class: uint8(c.Class), Decode: uint8(c.Decode), Effect: uint8(c.Effect), Scale: c.Scale,
		Ptr: c.Ptr, Bytes: c.Bytes, Times: c.Times, Stream: c.Stream, Src: c.Src, Value: c.Value,
	}
	if c.CountOnly {
		spec.CountOnly = 1
	}
	spec.NoReturn = uint8(c.returns())
	if c.Getter {
		spec.IsGetter = 1
	}
	return spec
}

// NeedsReturn reports whether the call's return must be probed too: all but those
// that are counted and change nothing, and those that tell everything at their entry.
func (c *Call) NeedsReturn() bool {
	return c.returns() != CudaNoReturnRETURN_NEVER && (!c.CountOnly || c.Effect != CudaCallEffectEFFECT_NONE)
}

// ReturnSpared reports whether calls may come so often that their returns are not always
// probed: launches of kernels.
func (c *Call) ReturnSpared() bool { return c.returns() == CudaNoReturnRETURN_SOMETIMES }

func (c *Call) returns() CudaNoReturn {
	switch {
	case c.Class == CudaCallClassCLASS_ALLOCATOR:
		return CudaNoReturnRETURN_NEVER
	case c.Effect == CudaCallEffectEFFECT_LAUNCH:
		return CudaNoReturnRETURN_SOMETIMES
	}
	return CudaNoReturnRETURN_ALWAYS
}

package format

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
)

// Rows of kind kernel_args have the arguments of one kernel launch (record --kernel-args). Since 1.2. StartNs,
// Pid, Tid, Name, Context, Stream, Function, Kernel and Flags are those of the launch, which has another row.
// Value is the number of values, Bytes their size. Message is a KernelArgs as JSON.

// How the parameters of a kernel became known: values of KernelArgs.Layout.
const (
	// ArgumentsFromCalls: the program itself asked the driver (cuFuncGetParamInfo, cuKernelGetParamInfo).
	ArgumentsFromCalls = "calls"
	// ArgumentsFromModule: the image of the module, a cubin, fatbin or PTX.
	ArgumentsFromModule = "module"
	// ArgumentsUnknown: neither. Values are words of 8 bytes behind the pointers of the launch, as long as these
	// could be read. A parameter can be shorter or longer than a word, and there may be fewer or more parameters.
	ArgumentsUnknown = "unknown"
)

// KernelArgs is the message of rows of kind kernel_args.
type KernelArgs struct {
	Layout string           `json:"layout"` // one of the Arguments constants
	Values []KernelArgument `json:"values"`
	// Missing says why not all values are there. "": they are, as long as Layout is known.
	Missing string `json:"missing,omitempty"`
}

// KernelArgument is the value of one parameter of a kernel.
type KernelArgument struct {
	// Offset is the place of the parameter in the parameter buffer, in bytes. nil: unknown.
	Offset *int64 `json:"offset,omitempty"`
	// Hex has the bytes of the value in the order of memory, two hexadecimal digits each.
	Hex string `json:"hex"`
	// IsCut is true if the value has more bytes than Hex.
	IsCut bool `json:"cut,omitempty"`
}

// Bytes returns the bytes of the value, in the order of memory.
func (a *KernelArgument) Bytes() []byte {
	raw, err := hex.DecodeString(a.Hex)
	if err != nil {
		return nil
	}
	return raw
}

// Words returns the aligned words of 8 bytes in the value, which can be pointers. A structure has several. A
// value of another size than 8 that is no structure has none.
func (a *KernelArgument) Words() (words []uint64) {
	raw := a.Bytes()
	for ; len(raw) >= 8; raw = raw[8:] {
		words = append(words, binary.LittleEndian.Uint64(raw))
	}
	return words
}

// ParseKernelArgs parses the message of a row of kind kernel_args.
func ParseKernelArgs(message string) (KernelArgs, error) {
	var a KernelArgs
	err := json.Unmarshal([]byte(message), &a)
	return a, err
}

//go:build linux

package remote

import (
	"errors"

	"github.com/gpurec/gpurec/symbolize"
)

// MaxFrames bounds the native frames of a stack.
const MaxFrames = 1024

// Memory reads memory of the process.
type Memory interface {
	// Read fills a buffer from an address, or returns an error.
	Read(addr uint64, into []byte) error
}

// Space has the code of a process.
type Space interface {
	Memory
	// Mapping returns the mapping of an address.
	Mapping(addr uint64) (symbolize.Mapping, bool)
	// Table returns the table of the file of a mapping.
	Table(m symbolize.Mapping) (*Table, error)
	// TrueReturn returns the return address that a return probe has replaced at an address on the
	// stack.
	TrueReturn(slot uint64) (uint64, bool)
}

// Frame is one native frame.
type Frame struct {
	// PC is the address of the next instruction. In all frames but the innermost one, and those that
	// a signal interrupted, the call is before it.
	PC uint64
	// Exact says that PC itself is the instruction of the frame, not the one behind its call.
	Exact bool
}

// Lookup returns the address of the instruction of the frame.
func (f Frame) Lookup() uint64 {
	if f.Exact || f.PC == 0 {
		return f.PC
	}
	return f.PC - 1
}

// Reasons why a stack ends before its first frame.
var (
	// ErrUnreadable is the reason if the stack's memory is unreadable.
	ErrUnreadable = errors.New("the stack is unreadable")
	// ErrNoCode is the reason if an address is not in code: the frame below has no valid rule.
	ErrNoCode = errors.New("an address is not in code")
	// ErrNoTable is the reason if the code has no table, such as JIT code.
	ErrNoTable = errors.New("code without unwind information")
	// ErrLoop is the reason if a frame is not above the frame that it called.
	ErrLoop = errors.New("the stack does not grow")
	// ErrTooDeep is the reason if the stack has more than MaxFrames frames.
	ErrTooDeep = errors.New("too many frames")
	// ErrUnsupported is the reason on processors whose rules are not implemented.
	ErrUnsupported = errors.New("user stacks are not unwound on this processor")
)

// uprobesMapping is the name of the mapping to which functions with return probes return.
const uprobesMapping = "[uprobes]"

// isReturnProbe reports whether an address in the mapping is that of a return probe.
func isReturnProbe(m symbolize.Mapping) bool { return m.Path == uprobesMapping }

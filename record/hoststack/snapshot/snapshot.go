//go:build linux

package snapshot

import (
	"bytes"
	"unsafe"

	"github.com/gpurec/gpurec/bpf"
)

// Sizes of the kernel's records.
const (
	pageBytes    = uint64(bpf.HostStackHostLimitsHOST_PAGE)
	stackBytes   = int(bpf.HostStackHostLimitsHOST_STACK_BYTES)
	pythonFrames = int(bpf.HostStackHostLimitsHOST_PYTHON_FRAMES)
	// PythonFrameBytes is the length of a Python frame in a snapshot.
	PythonFrameBytes = int(bpf.HostStackHostLimitsHOST_PYTHON_BYTES)
	recordBytes      = int(unsafe.Sizeof(bpf.HostStackHostSnapshot{}))
)

// Snapshot is the state of one thread.
type Snapshot struct {
	bpf.HostStackHostSnapshot
	// Stack is the top of the user stack from StackAddr, in whole pages.
	Stack     []byte
	StackAddr uint64
	// Sampled says that an event interrupted the running thread.
	Sampled bool
	// Python are the Python frames of a sampled thread, innermost first. Each has PythonFrameBytes.
	Python []byte
}

// Bits of the kernel's task state.
const (
	stateInterruptible   = 0x01
	stateUninterruptible = 0x02
	stateStopped         = 0x04
	stateTraced          = 0x08
	stateNoLoad          = 0x400 // with stateUninterruptible: idle kernel threads
)

// Names of states of threads.
const (
	StateRunning         = "running"         // on a processor
	StateRunnable        = "runnable"        // waits for a processor
	StateSleeping        = "sleeping"        // waits; a signal ends the wait
	StateUninterruptible = "uninterruptible" // waits; no signal ends the wait
	StateStopped         = "stopped"         // by a signal
	StateTraced          = "traced"          // by a debugger
	StateExiting         = "exiting"
)

// StateName returns the state of the thread.
func (s *Snapshot) StateName() string {
	switch {
	case s.Sampled || s.OnCpuBefore != 0:
		return StateRunning
	case s.State&0xff == 0:
		return StateRunnable
	case s.State&stateInterruptible != 0:
		return StateSleeping
	case s.State&stateUninterruptible != 0:
		return StateUninterruptible
	case s.State&stateStopped != 0:
		return StateStopped
	case s.State&stateTraced != 0:
		return StateTraced
	}
	return StateExiting
}

// ThreadName returns the name of the thread, as the kernel stores it: up to 15 bytes.
func (s *Snapshot) ThreadName() string {
	name := unsafe.Slice((*byte)(unsafe.Pointer(&s.Name[0])), len(s.Name))
	before, _, _ := bytes.Cut(name, []byte{0})
	return string(before)
}

// Place returns the program counter and the stack pointer of the thread in user mode.
func (s *Snapshot) Place() (pc, sp uint64) { return s.Regs[regPC], s.Regs[regSP] }

// Switches returns the number of context switches of the thread.
func (s *Snapshot) Switches() uint64 { return s.VoluntaryBefore + s.InvoluntaryBefore }

// IsConsistent reports whether registers and stack are of one moment.
func (s *Snapshot) IsConsistent() bool {
	if s.Sampled {
		return true
	}
	return s.OnCpuBefore == 0 && s.OnCpuAfter == 0 &&
		s.VoluntaryBefore == s.VoluntaryAfter && s.InvoluntaryBefore == s.InvoluntaryAfter
}

// IsSameMoment reports whether the thread has not run between two snapshots. The kernel counts a
// switch before it clears on_cpu.
func (s *Snapshot) IsSameMoment(other *Snapshot) bool {
	return s.Tid == other.Tid && s.StartNs == other.StartNs && s.OnCpuBefore == 0 && other.OnCpuBefore == 0 &&
		s.OnCpuAfter == 0 && other.OnCpuAfter == 0 && s.VoluntaryBefore == other.VoluntaryAfter &&
		s.InvoluntaryBefore == other.InvoluntaryAfter
}

// KernelStack returns the addresses of the kernel stack, innermost first.
func (s *Snapshot) KernelStack() []uint64 {
	n := max(0, int(s.KernelBytes)/8)
	return s.Kernel[:min(n, len(s.Kernel))]
}

// TrueReturn returns the return address that a return probe has replaced at an address on the stack.
func (s *Snapshot) TrueReturn(slot uint64) (uint64, bool) {
	found, ok := uint64(0), false
	// A chain of probes on one function has several entries of one slot. The newest comes first,
	// and only the oldest has the address of the caller.
	for _, r := range s.Returns[:min(int(s.ReturnCount), len(s.Returns))] {
		if r.Slot == slot {
			found, ok = r.Address, true
		}
	}
	return found, ok
}

// parse reads one record with its stack, and returns the rest of the data. The stack is part of the
// data.
func parse(data []byte) (*Snapshot, []byte, bool) {
	if len(data) < recordBytes {
		return nil, data, false
	}
	s := new(Snapshot)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&s.HostStackHostSnapshot)), recordBytes), data)
	end := recordBytes + min(int(s.Copied), stackBytes)
	if len(data) < end {
		return nil, data, false
	}
	s.Stack, s.StackAddr = data[recordBytes:end], s.Regs[regSP]&^(pageBytes-1)
	return s, data[end:], true
}

// parseRunning reads the record of a running thread.
func parseRunning(data []byte) (*Snapshot, bool) {
	if len(data) < recordBytes+stackBytes+pythonFrames*PythonFrameBytes {
		return nil, false
	}
	s, _, ok := parse(data)
	if !ok {
		return nil, false
	}
	s.Sampled = true
	python := data[recordBytes+stackBytes:]
	s.Python = python[:min(int(s.PythonCount), pythonFrames)*PythonFrameBytes]
	return s, true
}

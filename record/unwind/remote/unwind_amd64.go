//go:build linux

package remote

import (
	"encoding/binary"
	"fmt"

	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// Indexes of registers in the kernel's struct pt_regs.
const (
	regR15, regR13, regBP, regR11, regR9, regR8 = 0, 2, 4, 6, 8, 9
	regAX, regDI, regPC, regSP                  = 10, 14, 16, 19
)

// Offsets of registers in the frame of a signal handler, in words from the start of its struct
// sigcontext, which is 40 bytes above the stack pointer.
const (
	signalContextOffset             = 40
	signalR8, signalR9, signalR11   = 0, 1, 3
	signalR13, signalR15, signalRDI = 5, 7, 8
	signalRBP, signalRAX, signalRSP = 10, 13, 15
	signalRIP, signalWords          = 16, 18
)

// walk is a stack that is being unwound.
type walk struct {
	space  Space
	reg    [support.UnwindRegX86R15 + 1]uint64
	exact  bool // the pc is an instruction, not a return address
	frames []Frame
}

// Unwind returns the frames of a stack, innermost first. regs are the registers in the order of the
// kernel's struct pt_regs. The error is nil if the last frame is the first of the thread, else one
// of the reasons of this package.
func Unwind(space Space, regs []uint64) ([]Frame, error) {
	if len(regs) <= regSP {
		return nil, ErrUnreadable
	}
	w := walk{space: space, exact: true}
	w.reg[support.UnwindRegPc], w.reg[support.UnwindRegSp] = regs[regPC], regs[regSP]
	w.reg[support.UnwindRegFp], w.reg[support.UnwindRegX86RAX] = regs[regBP], regs[regAX]
	w.reg[support.UnwindRegX86RDI], w.reg[support.UnwindRegX86R8] = regs[regDI], regs[regR8]
	w.reg[support.UnwindRegX86R9], w.reg[support.UnwindRegX86R11] = regs[regR9], regs[regR11]
	w.reg[support.UnwindRegX86R13], w.reg[support.UnwindRegX86R15] = regs[regR13], regs[regR15]
	for len(w.frames) < MaxFrames {
		end, err := w.step()
		if end || err != nil {
			return w.frames, err
		}
	}
	return w.frames, ErrTooDeep
}

// step adds the current frame and goes to its caller. end says that the frame was the first one.
func (w *walk) step() (end bool, err error) {
	frame := Frame{PC: w.reg[support.UnwindRegPc], Exact: w.exact}
	m, ok := w.space.Mapping(frame.Lookup())
	if !ok || !m.Executable() {
		return false, ErrNoCode
	}
	w.frames = append(w.frames, frame)
	table, err := w.space.Table(m)
	if err != nil {
		return false, ErrNoTable
	}
	vaddr, ok := table.VAddr(frame.Lookup() - m.Start + m.Offset)
	if !ok {
		return false, ErrNoTable
	}
	rule, err := table.rule(vaddr)
	if err != nil {
		return false, ErrNoTable
	}
	if rule.Flags&support.UnwindFlagCommand != 0 {
		return w.follow(rule.Param)
	}
	return w.apply(rule)
}

// follow executes a rule for special code.
func (w *walk) follow(command int32) (end bool, err error) {
	sp, fp := w.reg[support.UnwindRegSp], w.reg[support.UnwindRegFp]
	switch command {
	case support.UnwindCommandStop:
		return true, nil
	case support.UnwindCommandPLT:
		// The rule of all PLTs: the second half of an entry has pushed its index.
		cfa := sp + 8
		if w.reg[support.UnwindRegPc]&15 >= 11 {
			cfa += 8
		}
		return w.returnTo(cfa)
	case support.UnwindCommandSignal:
		return false, w.leaveHandler(sp + signalContextOffset)
	case support.UnwindCommandFramePointer:
		caller, err := w.word(fp)
		if err != nil || fp < sp {
			return false, ErrUnreadable
		}
		w.reg[support.UnwindRegFp] = caller
		return w.returnTo(fp + 16)
	}
	return false, ErrNoTable
}

// leaveHandler continues where a signal interrupted the thread.
func (w *walk) leaveHandler(context uint64) error {
	var raw [8 * signalWords]byte
	if w.space.Read(context, raw[:]) != nil {
		return ErrUnreadable
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(raw[8*i:]) }
	w.reg[support.UnwindRegX86RDI], w.reg[support.UnwindRegX86R8] = word(signalRDI), word(signalR8)
	w.reg[support.UnwindRegX86R9], w.reg[support.UnwindRegX86R11] = word(signalR9), word(signalR11)
	w.reg[support.UnwindRegX86R13], w.reg[support.UnwindRegX86R15] = word(signalR13), word(signalR15)
	w.reg[support.UnwindRegX86RAX], w.reg[support.UnwindRegFp] = word(signalRAX), word(signalRBP)
	w.reg[support.UnwindRegSp], w.reg[support.UnwindRegPc] = word(signalRSP), word(signalRIP)
	w.exact = true
	return nil
}

// apply executes an ordinary rule: it computes the CFA, which is the caller's stack pointer.
func (w *walk) apply(rule sdtypes.UnwindInfo) (end bool, err error) {
	if rule.Flags&support.UnwindFlagLeafOnly != 0 && !w.exact {
		return false, ErrNoTable
	}
	base, ok := w.register(rule.BaseReg)
	if !ok {
		return false, ErrNoTable
	}
	cfa := base + uint64(int64(rule.Param))
	if rule.Flags&support.UnwindFlagDerefCfa != 0 {
		before, after := sdtypes.UnpackDerefParam(rule.Param)
		value, err := w.word(base + uint64(int64(before)))
		if err != nil {
			return false, err
		}
		cfa = value + uint64(int64(after))
	}
	w.reg[support.UnwindRegCfa] = cfa
	saved := uint64(0)
	if rule.AuxBaseReg != support.UnwindRegInvalid {
		if saved, ok = w.register(rule.AuxBaseReg); !ok {
			return false, ErrNoTable
		}
		saved += uint64(int64(rule.AuxParam))
	}
	if rule.Flags&support.UnwindFlagRegisterRA != 0 { // vfork keeps its return address in a register
		w.reg[support.UnwindRegPc], w.reg[support.UnwindRegSp], w.exact = saved, cfa, false
		return saved == 0, nil
	}
	switch {
	case saved != 0:
		if w.reg[support.UnwindRegFp], err = w.word(saved); err != nil {
			return false, err
		}
	case rule.BaseReg == support.UnwindRegFp:
		w.reg[support.UnwindRegFp] = 0
	}
	return w.returnTo(cfa)
}

// returnTo goes to the caller, whose stack pointer is cfa.
func (w *walk) returnTo(cfa uint64) (end bool, err error) {
	if cfa <= w.reg[support.UnwindRegSp] {
		return false, ErrLoop
	}
	slot := cfa - 8
	pc, err := w.word(slot)
	if err != nil {
		return false, err
	}
	if m, ok := w.space.Mapping(pc); ok && isReturnProbe(m) {
		if pc, ok = w.space.TrueReturn(slot); !ok {
			return false, ErrNoCode
		}
	}
	w.reg[support.UnwindRegPc], w.reg[support.UnwindRegSp], w.exact = pc, cfa, false
	return pc == 0, nil
}

// register returns the value of a register of a rule.
func (w *walk) register(number uint8) (uint64, bool) {
	if int(number) >= len(w.reg) {
		return 0, false
	}
	return w.reg[number], true
}

// word reads one word of the stack.
func (w *walk) word(addr uint64) (uint64, error) {
	var raw [8]byte
	if err := w.space.Read(addr, raw[:]); err != nil {
		return 0, fmt.Errorf("%w at %#x", ErrUnreadable, addr)
	}
	return binary.LittleEndian.Uint64(raw[:]), nil
}

//go:build linux

package stack

import (
	"unsafe"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/unwind"
	"github.com/gpurec/gpurec/symbolize"
)

// AddUnwoundStack names the frames of an unwound stack and returns rows like Add. Stacks that
// differ only in the instruction within a Python line are the same stack.
func (t *Table) AddUnwoundStack(e *bpf.CudaUnwoundEvent, words []uint64) []format.Row {
	words, classes := words[:min(int(e.Words), len(words))], words[min(int(e.Words), len(words)):]
	unwound := t.unwinder.Frames(int(e.Pid), words[min(int(e.KernelWords), len(words)):], classes)
	var rows []format.Row
	frames := make([]format.Frame, 0, len(unwound))
	for i := range unwound {
		frame, m := t.nameUnwoundFrame(&unwound[i])
		if m != nil && !m.noted {
			m.noted = true
			rows = append(rows, m.makeModuleRow(int32(e.Pid)))
		}
		frames = append(frames, frame)
	}
	status, why := format.StackComplete, ""
	if e.Error != 0 {
		status, why = format.StackTruncated, unwind.TruncationCause(e.Error)
		if last, here := t.explainTruncation(e); here != "" {
			why = here
			frames = append(frames, last...)
		}
	}
	key := t.keys.hashFrames(e.Pid, why, frames)
	if known, ok := t.chains[key]; ok {
		return append(rows, t.aliasStackID(e.StackId, known)...)
	}
	return append(
		rows,
		t.insertStack(
			e.StackId,
			key,
			format.Row{Pid: int32(e.Pid), StackStatus: status, Message: why, Frames: frames},
		)...)
}

// explainTruncation examines the code at which unwinding stopped. If it is more specific than the
// unwinder's error, explainTruncation returns the cause, and a frame for JIT code with its name.
func (t *Table) explainTruncation(e *bpf.CudaUnwoundEvent) ([]format.Frame, string) {
	space := t.addressSpaceOf(e.Pid)
	m, ok := symbolize.FindMapping(space.maps, e.StopPc)
	switch {
	case ok && m.Path == "[uprobes]":
		return nil, format.TruncationProbe
	case !ok || m.Inode != 0 || !m.Executable():
		return nil, ""
	}
	frame, _ := space.nameJITFrame(format.Frame{Type: "native", Addr: int64(e.StopPc)}, e.StopPc, m)
	return []format.Frame{frame}, format.TruncationCode
}

// nameUnwoundFrame returns one unwound frame with its function, file and module.
func (t *Table) nameUnwoundFrame(f *unwind.Frame) (format.Frame, *mappedModule) {
	if f.Python {
		return format.Frame{
			Func:       f.Function,
			SystemName: f.Function,
			File:       f.File,
			Line:       int32(f.Line),
			Type:       "python",
			SelfClass:  f.SelfClass,
		}, nil
	}
	frame := format.Frame{Type: "native", Addr: int64(f.Addr)}
	if f.Module == nil {
		return frame, nil
	}
	mod, ok := t.unwound[f.Module]
	if !ok {
		mod = &mappedModule{path: f.Module.Path, file: f.Module.File}
		t.unwound[f.Module] = mod
	}
	frame.Module = mod.path
	if object := mod.loadSymbols(); object != nil {
		frame.BuildID = object.BuildID()
		setFunctionName(&frame, object)
	}
	return frame, mod
}

// The row writer reads records in place, so the Go struct must have the layout of the BPF struct.
var _ = [1]struct{}{}[unsafe.Sizeof(bpf.CudaUnwoundEvent{})-32]

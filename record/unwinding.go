//go:build linux

package record

import (
	"encoding/json"
	"os"

	"github.com/cilium/ebpf"
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/rowwriter"
	"github.com/gpurec/gpurec/record/unwind"
)

// ErrUnpatched is the StacksError of a build in which stacks have no Python frames.
var ErrUnpatched = unwind.ErrUnpatched

// startUnwinder starts what complete stacks need. Where it cannot, stacks are walked by
// frame pointers and stacksErr says why.
func (s *Session) startUnwinder(how privilege.Attach) {
	if s.opt.Stacks != probe.StacksAuto && s.opt.Stacks != probe.StacksFull {
		return
	}
	opt := unwindOptions(how)
	opt.Mapped = s.targets.NoteMapped
	for _, p := range s.targets.All() {
		opt.Pids = append(opt.Pids, p.Pid)
	}
	s.unwinder, s.stacksErr = startUnwinding(opt)
	if s.stacksErr != nil {
		s.opt.Stacks = probe.StacksFP
	} else if !unwind.Patched() {
		s.stacksErr = ErrUnpatched
	}
}

// startUnwinding starts the profiler if we may.
func startUnwinding(opt unwind.Options) (*unwind.Unwinder, error) {
	if err := privilege.CheckUnwinding(); err != nil {
		return nil, err
	}
	return unwind.Start(opt)
}

// unwindOptions are those that the BPF programs need, with this process to unwind: that is
// the self-test.
func unwindOptions(how privilege.Attach) unwind.Options {
	opt := unwind.Options{
		AttachType: ebpf.AttachTraceUprobeMulti,
		EntrySlot:  uint32(bpf.CudaUnwinderSlotUNWINDER_ENTRY),
		Pids:       []int{os.Getpid()},
	}
	if how == privilege.AttachPerf {
		opt.AttachType = ebpf.AttachNone
	}
	return opt
}

// inferenceNotes say how often inferred stacks were wrong, a row per class of calls.
func (s *Session) inferenceNotes(now int64) []format.Row {
	var rows []format.Row
	for class, sum := range s.probes.InferenceStats() {
		var inferred int64
		for _, n := range sum.Inferred {
			inferred += int64(n)
		}
		if inferred+int64(sum.Checked+sum.Busy) == 0 {
			continue
		}
		text, err := json.Marshal(format.StackInference{
			Class:      rowwriter.ClassNames[class],
			Key:        "call, then what came before, or Python frames, then native path",
			Inferred:   inferred,
			BySequence: int64(sum.Inferred[bpf.CudaFingerprintLevelLEVEL_SEQUENCE]),
			ByPython: int64(
				sum.Inferred[bpf.CudaFingerprintLevelLEVEL_PYTHON],
			),
			ByPath: int64(sum.Inferred[bpf.CudaFingerprintLevelLEVEL_PATH]),
			Checked: int64(
				sum.Checked,
			),
			Wrong:          int64(sum.Wrong),
			WrongEstimated: int64(sum.WrongWeight),
			Busy:           int64(sum.Busy),
		})
		if err != nil {
			continue // strings and numbers always encode
		}
		rows = append(
			rows,
			format.Row{
				Kind:    format.KindNote,
				Name:    format.NoteStackInference,
				StartNs: now,
				Device:  -1,
				Message: string(text),
			},
		)
	}
	return rows
}

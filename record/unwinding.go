//go:build linux

package record

import (
	"encoding/json"
	"errors"
	"os"

	"github.com/cilium/ebpf"
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hoststack"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/rowwriter"
	"github.com/gpurec/gpurec/record/unwind"
	"github.com/gpurec/gpurec/record/unwind/tablecache"
)

// ErrUnpatched is the StacksError of a gpurec build whose unwinder finds no Python frames.
var ErrUnpatched = unwind.ErrUnpatched

// startUnwinder starts the unwinder for complete stacks. If it cannot, stacks are walked by frame
// pointers, and stacksErr is the reason.
func (s *Session) startUnwinder(how privilege.AttachMethod) {
	if s.opt.Stacks != probe.StacksAuto && s.opt.Stacks != probe.StacksFull {
		return
	}
	opt := newUnwindOptions(how)
	opt.Mapped = s.targets.NoteMapped
	for _, p := range s.targets.All() {
		opt.Pids = append(opt.Pids, p.Pid)
	}
	opt.Tables = s.openTables()
	s.unwinder, s.stacksErr = newUnwinder(opt)
	if s.stacksErr != nil {
		s.opt.Stacks = probe.StacksFP
	} else if !unwind.IsPatched() {
		s.stacksErr = ErrUnpatched
	}
}

// openTables opens the folder of unwind tables. It returns nil if there is none, for example because
// the recorder may not create it. If others may write to it, the user is warned.
func (s *Session) openTables() *tablecache.Cache {
	if s.opt.TableFolder == "" {
		return nil
	}
	tables, err := tablecache.Open(s.opt.TableFolder, tablecache.DefaultMaxBytes)
	if errors.Is(err, tablecache.ErrUnsafe) {
		s.warn("unwind tables are not kept for the next recording: " + err.Error())
	}
	s.tables = tables
	return tables
}

// newStackFiles returns what snapshots of threads know of files. They use the unwinder's tables.
func (s *Session) newStackFiles() *hoststack.Files {
	if s.tables == nil {
		return hoststack.NewFiles(nil)
	}
	return hoststack.NewFiles(s.tables)
}

// newUnwinder starts the OpenTelemetry profiler, if the privileges suffice.
func newUnwinder(opt unwind.Options) (*unwind.Unwinder, error) {
	if err := privilege.CheckUnwinding(); err != nil {
		return nil, err
	}
	return unwind.Start(opt)
}

// newUnwindOptions returns the options of the unwinder. Pids contains gpurec itself, which the
// self-test unwinds.
func newUnwindOptions(how privilege.AttachMethod) unwind.Options {
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

// inferenceNotes returns a note per class of calls with the error rate of inferred stacks.
func (s *Session) inferenceNotes(now int64) []format.Row {
	var rows []format.Row
	for class, sum := range s.probes.SumInferenceStats() {
		var inferred int64
		for _, n := range sum.Inferred {
			inferred += int64(n)
		}
		if inferred+int64(sum.Checked+sum.Busy+sum.Rationed) == 0 {
			continue
		}
		text, err := json.Marshal(format.StackInference{
			Class:      rowwriter.CallClassNames[class],
			Key:        "call, then previous stack and Python line, then Python frames, then native path",
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
			WrongEstimated: estimateWrongStacks(&sum),
			Busy:           int64(sum.Busy),
			Rationed:       int64(sum.Rationed),
			Unchecked:      int64(sum.Unchecked),
		})
		if err != nil {
			continue // cannot happen: strings and numbers always encode
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

// estimateWrongStacks returns the estimated number of inferred stacks that are wrong. Each wrong
// check represents a number of calls. Calls whose check was rationed are as often wrong as checks.
func estimateWrongStacks(sum *bpf.CudaInferenceStats) int64 {
	wrong := float64(sum.WrongWeight)
	if sum.Checked > 0 {
		wrong += float64(sum.Unchecked) * float64(sum.Wrong) / float64(sum.Checked)
	}
	return int64(wrong)
}

//go:build linux

package record

import (
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// fill makes the row of one call. The row's memory is used again: every column that
// a call row has is set.
func (s *scribe) fill(row *format.Row, e *bpf.CudaEvent, call *bpf.Call, name string) {
	*row = format.Row{
		Kind: call.Kind, Name: name, MemoryKind: call.Memory, CopyKind: call.Copy,
		StartNs: s.accounts.clock.unix(e.StartNs), DurNs: int64(e.DurNs),
		Pid: int32(e.Pid), Tid: int32(e.Tid), CPU: int32(e.Cpu), Device: int32(e.Device),
		Context: int64(e.Context), Stream: int64(e.Stream), Result: e.Result, Flags: rowFlags(e.Flags),
		Ptr: int64(e.Ptr), Bytes: int64(e.Bytes), SrcPtr: int64(e.Src),
	}
	if e.ParentNs != 0 {
		row.ParentStartNs = s.accounts.clock.unix(e.ParentNs)
	}
	s.interpret(row, e, call)
	row.StackStatus = format.StackNone
	if e.StackId != 0 {
		stack := s.stacks.get(e.StackId)
		row.StackID, row.Site = stack.id, stack.site
		row.StackStatus = stack.status
		if stack.id != 0 && e.Stack == uint8(bpf.CudaStackStateSTACK_PARENT) {
			row.StackStatus = format.StackParent
		}
	}
}

// interpret moves the members of an event to where the row has them.
func (s *scribe) interpret(row *format.Row, e *bpf.CudaEvent, call *bpf.Call) {
	switch call.Meaning {
	case bpf.Launch:
		row.GridX, row.GridY, row.GridZ = int32(e.Grid[0]), int32(e.Grid[1]), int32(e.Grid[2])
		row.BlockX, row.BlockY, row.BlockZ = int32(e.Block[0]), int32(e.Block[1]), int32(e.Block[2])
		row.SharedBytes = int32(e.SharedBytes)
		row.Function, row.SrcPtr = int64(e.Src), 0
		row.Kernel = s.names[kernelKey{e.Pid, e.Src}].display
	case bpf.NewFunction:
		row.Function, row.Ptr, row.Bytes, row.SrcPtr = int64(e.Ptr), int64(e.Bytes), 0, 0
		if row.Function == 0 {
			return
		}
		name, known := s.names[kernelKey{e.Pid, e.Ptr}]
		if of, ok := s.names[kernelKey{e.Pid, e.Bytes}]; ok && call.Effect == bpf.CudaCallEffectEFFECT_NONE {
			name, known = of, true // the function of a named kernel
			s.learnName(e.Pid, e.Ptr, e.StartNs, name)
		}
		if known {
			row.Kernel = name.display
		}
	case bpf.OfFunction:
		row.Function, row.Ptr = int64(e.Ptr), 0
		row.Kernel = s.names[kernelKey{e.Pid, e.Ptr}].display
	case bpf.OnDevice:
		row.Device, row.Bytes = int32(e.Bytes), 0
	case bpf.FreeOfTotal:
		row.Value, row.SrcPtr = float64(e.Src), 0
	case bpf.ElapsedTime:
		row.Value, row.Bytes = float64(math.Float32frombits(uint32(e.Bytes))), 0
	}
}

// rowFlags translates the kernel's flags; the numbers of the file stay when those of
// the kernel change.
func rowFlags(flags uint8) int32 {
	var row int32
	for _, pair := range [...]struct {
		kernel bpf.CudaEventFlags
		row    int32
	}{
		{bpf.CudaEventFlagsEVENT_OPEN, format.FlagOpen},
		{bpf.CudaEventFlagsEVENT_ABANDONED, format.FlagAbandoned},
		{bpf.CudaEventFlagsEVENT_UNREADABLE, format.FlagUnreadable},
	} {
		if flags&uint8(pair.kernel) != 0 {
			row |= pair.row
		}
	}
	return row
}

// addStack names the frames of a stack seen for the first time and writes its row.
func (s *scribe) addStack(e *bpf.CudaStackEvent) {
	rows := s.stacks.add(e)
	for i := range rows {
		rows[i].StartNs = s.accounts.clock.now()
		s.write(format.ClassOf(rows[i].Kind), rows[i:i+1])
	}
}

// addName remembers the name behind a kernel handle and writes it down.
func (s *scribe) addName(e *bpf.CudaNameEvent) {
	text := unsafe.Slice((*byte)(unsafe.Pointer(&e.Name[0])), len(e.Name))
	length := max(0, min(int(e.Length)-1, len(text)))
	mangled := strings.Clone(string(text[:length]))
	s.learnName(e.Pid, e.Handle, e.StartNs, kernelName{mangled: mangled, display: symbolize.Demangle(mangled)})
}

// learnName notes that a handle stands for a kernel from a time on; programs ask for
// the same handle again and again, only news are written down.
func (s *scribe) learnName(pid uint32, handle, startNs uint64, name kernelName) {
	key := kernelKey{pid, handle}
	if s.names[key] == name {
		return
	}
	s.names[key] = name
	s.write(format.ClassFact, []format.Row{{
		Kind: format.KindKernel, StartNs: s.accounts.clock.unix(startNs), Pid: int32(pid), Device: -1,
		Function: int64(handle), Name: name.mangled, Kernel: name.display,
	}})
}

// noteThread writes a thread's name down when it makes its first call.
func (s *scribe) noteThread(pid, tid int32) {
	name := threadName(pid, tid)
	s.threads[tid] = name
	s.write(format.ClassFact, []format.Row{{
		Kind: format.KindThread, StartNs: s.accounts.clock.now(), Pid: pid, Tid: tid, Name: name, Device: -1,
	}})
}

func threadName(pid, tid int32) string {
	comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(pid)), "task", strconv.Itoa(int(tid)), "comm"))
	if err != nil {
		return "" // gone already
	}
	return strings.TrimSuffix(string(comm), "\n")
}

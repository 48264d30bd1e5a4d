//go:build linux

package rowwriter

import (
	"unsafe"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// discardHandleNames discards all kernel names that were read through kernel handles, if the driver
// keeps no names there. The check compares these names with the names in calls. Driver 580 keeps
// names behind handles, but does not document it.
func (w *Writer) discardHandleNames() {
	if w.namesDistrusted {
		return
	}
	confirmed, contradicted := w.counters.readNameChecks()
	if contradicted == 0 || contradicted < confirmed {
		return
	}
	w.namesDistrusted = true
	w.writeRows(format.ClassFact, []format.Row{
		{
			Kind:    format.KindNote,
			Name:    "kernel_names",
			StartNs: w.counters.clock.NowNs(),
			Device:  -1,
			Value:   float64(w.names.discardHandleNames()),
			Message: "this driver keeps no kernel names behind handles: kernels whose handles are older " +
				"than the recording have no reliable names",
		},
	})
}

// readNameChecks returns how often a name read through a handle matched the name in a call
// (confirmed), and how often it differed (contradicted).
func (cc *callCounters) readNameChecks() (confirmed, contradicted uint64) {
	var sums [2]uint64
	for i := range sums {
		var perCPU []uint64
		if err := cc.probes.Objects.NameChecks.Lookup(uint32(i), &perCPU); err != nil {
			return 0, 0
		}
		for _, n := range perCPU {
			sums[i] += n
		}
	}
	return sums[bpf.CudaNameCheckNAME_CONFIRMED], sums[bpf.CudaNameCheckNAME_CONTRADICTED]
}

// addKernelName stores the name of a kernel handle and writes a row of kind kernel.
func (w *Writer) addKernelName(e *bpf.CudaNameEvent) {
	text := unsafe.Slice((*byte)(unsafe.Pointer(&e.Name[0])), len(e.Name))
	mangled := text[:max(0, min(int(e.Length)-1, len(text)))]
	behind := bpf.CudaNameSource(e.Source) == bpf.CudaNameSourceNAME_FROM_HANDLE
	if behind && (w.namesDistrusted || !looksLikeKernelName(string(mangled))) {
		return
	}
	w.storeKernelName(e.Pid, e.Handle, e.StartNs, w.names.demangleName(mangled), behind)
}

// looksLikeKernelName reports whether a text can be a kernel's name in an object file. The driver
// may keep anything behind a handle.
func looksLikeKernelName(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c == '$' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '.' && c != '@' && (c < '0' || c > '9')) {
			return false
		}
	}
	return len(name) > 1
}

// storeKernelName stores the name of a handle, which is valid from startNs on, and writes a row if
// the name is new. behind means that the name was read through the handle, not seen in a call.
func (w *Writer) storeKernelName(pid uint32, handle, startNs uint64, name kernelName, behind bool) {
	key := kernelKey{pid, handle}
	if w.names.byHandle[key] == name {
		if !behind {
			delete(w.names.behind, key)
		}
		return
	}
	if !w.names.addName(key, name, behind) {
		if !w.names.noteWritten {
			w.names.noteWritten = true
			w.writeNote("kernel_names", "the table of kernel names is full: kernels that are launched for the first "+
				"time from here on have no names")
		}
		return
	}
	w.writeRows(format.ClassFact, []format.Row{{
		Kind: format.KindKernel, StartNs: w.counters.clock.UnixNs(startNs), Pid: int32(pid), Device: -1,
		Function: int64(handle), Name: name.mangled, Kernel: name.display,
	}})
}

// writeNote writes a row of kind note.
func (w *Writer) writeNote(name, message string) {
	w.writeRows(
		format.ClassFact,
		[]format.Row{
			{Kind: format.KindNote, Name: name, StartNs: w.counters.clock.NowNs(), Device: -1, Message: message},
		},
	)
}

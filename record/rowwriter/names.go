//go:build linux

package rowwriter

import (
	"unsafe"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// distrustNames takes back all names that were read behind handles older than the
// recording, where driver 580 keeps them without saying so, if comparisons with
// handles whose names are known from calls say that something else stands there.
func (s *Writer) distrustNames() {
	if s.namesDistrusted {
		return
	}
	confirmed, contradicted := s.counters.nameChecks()
	if contradicted == 0 || contradicted < confirmed {
		return
	}
	s.namesDistrusted = true
	s.write(format.ClassFact, []format.Row{
		{
			Kind:    format.KindNote,
			Name:    "kernel_names",
			StartNs: s.counters.clock.NowNs(),
			Device:  -1,
			Value:   float64(s.names.distrust()),
			Message: "this driver keeps no kernel names behind handles: " +
				"kernels that the program looked up before the recording have no reliable names",
		},
	})
}

// nameChecks returns how often the name behind a handle was the one by which a call
// had asked for it, and how often not.
func (a *counters) nameChecks() (confirmed, contradicted uint64) {
	var sums [2]uint64
	for i := range sums {
		var perCPU []uint64
		if err := a.probes.Objects.NameChecks.Lookup(uint32(i), &perCPU); err != nil {
			return 0, 0
		}
		for _, n := range perCPU {
			sums[i] += n
		}
	}
	return sums[bpf.CudaNameCheckNAME_CONFIRMED], sums[bpf.CudaNameCheckNAME_CONTRADICTED]
}

// addName remembers the name behind a kernel handle and writes it down.
func (s *Writer) addName(e *bpf.CudaNameEvent) {
	text := unsafe.Slice((*byte)(unsafe.Pointer(&e.Name[0])), len(e.Name))
	mangled := text[:max(0, min(int(e.Length)-1, len(text)))]
	behind := bpf.CudaNameSource(e.Source) == bpf.CudaNameSourceNAME_FROM_HANDLE
	if behind && (s.namesDistrusted || !looksLikeSymbol(string(mangled))) {
		return
	}
	s.learnName(e.Pid, e.Handle, e.StartNs, s.names.name(mangled), behind)
}

// looksLikeSymbol reports whether a text can be the name of a kernel in an object
// file: what a driver keeps behind a handle may be anything.
func looksLikeSymbol(name string) bool {
	for i, c := range []byte(name) {
		letter := c == '_' || c == '$' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c != '.' && c != '@' && (c < '0' || c > '9')) {
			return false
		}
	}
	return len(name) > 1
}

// learnName notes that a handle stands for a kernel from a time on, as a call said or as
// was read behind the handle; programs ask for the same handle again and again, only
// news are written down.
func (s *Writer) learnName(pid uint32, handle, startNs uint64, name kernelName, behind bool) {
	key := kernelKey{pid, handle}
	if s.names.byHandle[key] == name {
		if !behind {
			delete(s.names.behind, key)
		}
		return
	}
	if !s.names.add(key, name, behind) {
		if !s.names.told {
			s.names.told = true
			s.note("kernel_names", "the recorded processes have used more kernels than gpurec keeps names of: those "+
				"that are new from here on have none")
		}
		return
	}
	s.write(format.ClassFact, []format.Row{{
		Kind: format.KindKernel, StartNs: s.counters.clock.UnixNs(startNs), Pid: int32(pid), Device: -1,
		Function: int64(handle), Name: name.mangled, Kernel: name.display,
	}})
}

// note writes down something that the reader has to know.
func (s *Writer) note(name, message string) {
	s.write(
		format.ClassFact,
		[]format.Row{
			{Kind: format.KindNote, Name: name, StartNs: s.counters.clock.NowNs(), Device: -1, Message: message},
		},
	)
}

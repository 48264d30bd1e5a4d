//go:build linux

package record

import (
	"slices"
	"unsafe"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// handleNames are the kernel names that were read behind handles older than the
// recording, where driver 580 keeps them without saying so. They are believed until
// handles whose names are known from calls speak against it.
type handleNames struct {
	learned    []kernelKey
	distrusted bool
}

// forget drops the names of processes that are gone.
func (n *handleNames) forget(gone map[int32]bool) {
	n.learned = slices.DeleteFunc(n.learned, func(k kernelKey) bool { return gone[int32(k.pid)] })
}

// distrustNames takes back all names read behind handles if comparisons with names
// known from calls say that something else stands there.
func (s *scribe) distrustNames() {
	if s.behind.distrusted {
		return
	}
	confirmed, contradicted := s.accounts.nameChecks()
	if contradicted == 0 || contradicted < confirmed {
		return
	}
	s.behind.distrusted = true
	for _, key := range s.behind.learned {
		delete(s.names.byHandle, key)
	}
	s.write(format.ClassFact, []format.Row{{
		Kind: format.KindNote, Name: "kernel_names", StartNs: s.accounts.clock.now(), Device: -1, Value: float64(len(s.behind.learned)),
		Message: "this driver keeps no kernel names behind handles: kernels that the program looked up before the recording have no reliable names",
	}})
}

// nameChecks returns how often the name behind a handle was the one by which a call
// had asked for it, and how often not.
func (a *accounts) nameChecks() (confirmed, contradicted uint64) {
	var sums [2]uint64
	for i := range sums {
		var perCPU []uint64
		if err := a.probes.objects.NameChecks.Lookup(uint32(i), &perCPU); err != nil {
			return 0, 0
		}
		for _, n := range perCPU {
			sums[i] += n
		}
	}
	return sums[bpf.CudaNameCheckNAME_CONFIRMED], sums[bpf.CudaNameCheckNAME_CONTRADICTED]
}

// addName remembers the name behind a kernel handle and writes it down.
func (s *scribe) addName(e *bpf.CudaNameEvent) {
	text := unsafe.Slice((*byte)(unsafe.Pointer(&e.Name[0])), len(e.Name))
	mangled := text[:max(0, min(int(e.Length)-1, len(text)))]
	behind := bpf.CudaNameSource(e.Source) == bpf.CudaNameSourceNAME_FROM_HANDLE
	if behind && (s.behind.distrusted || !looksLikeSymbol(string(mangled))) {
		return
	}
	if s.learnName(e.Pid, e.Handle, e.StartNs, s.names.name(mangled)) && behind {
		s.behind.learned = append(s.behind.learned, kernelKey{e.Pid, e.Handle})
	}
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

// learnName notes that a handle stands for a kernel from a time on; programs ask for
// the same handle again and again, only news are written down. It reports whether the name is known now.
func (s *scribe) learnName(pid uint32, handle, startNs uint64, name kernelName) bool {
	key := kernelKey{pid, handle}
	if s.names.byHandle[key] == name {
		return true
	}
	if !s.names.add(key, name) {
		if !s.names.told {
			s.names.told = true
			s.note("kernel_names", "the recorded processes have used more kernels than gpurec keeps names of: those that are new from here on have none")
		}
		return false
	}
	s.write(format.ClassFact, []format.Row{{
		Kind: format.KindKernel, StartNs: s.accounts.clock.unix(startNs), Pid: int32(pid), Device: -1,
		Function: int64(handle), Name: name.mangled, Kernel: name.display,
	}})
	return true
}

// note writes down something that the reader has to know.
func (s *scribe) note(name, message string) {
	s.write(format.ClassFact, []format.Row{{Kind: format.KindNote, Name: name, StartNs: s.accounts.clock.now(), Device: -1, Message: message}})
}

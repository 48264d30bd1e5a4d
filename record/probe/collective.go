//go:build linux

package probe

import (
	"errors"

	"github.com/cilium/ebpf"

	"github.com/gpurec/gpurec/bpf"
)

// collectivesSlot is the slot of a communicator's collectives: COLLECTIVES of collective.h.
const collectivesSlot = -1

// Communicator has what the BPF programs know about the communicator at an address.
type Communicator struct {
	// Epoch counts the beginnings and ends of communicators at the address. It is odd if the beginning of the
	// current communicator was seen.
	Epoch uint32
	// Counted is the number of its collectives that the library counts, too. Thread called the last of them: its
	// pid and tid as in bpf_get_current_pid_tgid.
	Counted, Thread uint64
}

// CommunicatorAt returns the communicator at an address of a process. ok is false if a communicator may have begun
// or ended without a new epoch: the probes are paused, or the map of numbers is full.
func (p *Probes) CommunicatorAt(pid uint32, at uint64) (c Communicator, ok bool) {
	var (
		n            bpf.CudaNumber
		paused, lost uint8
	)
	key := bpf.CudaNumberKey{Communicator: at, Pid: pid, Slot: collectivesSlot}
	if err := p.Objects.OperationNumbers.Lookup(key, &n); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return Communicator{}, false
	}
	// The programs stop to count epochs after they are paused, so this is read last.
	if p.Objects.Paused.Get(&paused) != nil || p.Objects.NumbersLost.Get(&lost) != nil {
		return Communicator{}, false
	}
	return Communicator{Epoch: uint32(n.Epoch), Counted: n.Counted, Thread: n.Thread}, paused == 0 && lost == 0
}

// UnknownInFlight is the result of CollectivesInFlight for unknown threads.
const UnknownInFlight = 1 << 32

// CollectivesInFlight returns the largest number of collectives that a thread has called and NCCL may not have
// launched: those of its call or its group.
func (p *Probes) CollectivesInFlight(thread uint64) int64 {
	var (
		t             bpf.CudaThread
		groupsSkipped uint8
	)
	if thread == 0 {
		return 0
	}
	if p.Objects.SkipGroups.Get(&groupsSkipped) != nil || groupsSkipped != 0 ||
		p.Objects.Threads.Lookup(thread, &t) != nil {
		return UnknownInFlight
	}
	if t.GroupDepth > 0 {
		return int64(t.GroupOperations)
	}
	for i := range t.Calls[:min(int(t.Open), len(t.Calls))] {
		call, _, _, ok := bpf.FunctionByCookie(t.Calls[i].Event.Call)
		switch {
		case !ok || call.Class != bpf.CudaCallClassCLASS_COLLECTIVE:
		case call.Decode == bpf.CudaCallDecodeDECODE_GROUP_END:
			return int64(t.GroupOperations)
		default:
			return 1
		}
	}
	return 0
}

// ForgetNumbers deletes the numbers of a process that has exited: its pid may be reused.
func (p *Probes) ForgetNumbers(pid int) {
	var (
		key bpf.CudaNumberKey
		n   bpf.CudaNumber
	)
	for entries := p.Objects.OperationNumbers.Iterate(); entries.Next(&key, &n); {
		if int(key.Pid) == pid {
			_ = p.Objects.OperationNumbers.Delete(key) // the iteration continues with the next key
		}
	}
}

//go:build linux

package probe

import (
	"errors"
	"os"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/symbolize"
)

// What a hit of a probe costs the program is the exception and the run of a BPF program.
// The kernel measures the latter (runtimes.go). For the former, a function of gpurec's own is
// called with and without a probe on it whose program returns at once. It is the least that
// a hit costs: what the exception pushes out of caches and predictors is not seen in a loop.

// probedHere is the function. Like most of a driver's it begins by saving the frame
// pointer, an instruction that the kernel need not execute step by step; nosplit, since
// else it would begin with a check of the stack's size.
//
//go:nosplit
//go:noinline
func probedHere(i int) byte {
	var frame [64]byte
	frame[i&63] = byte(i)
	return frame[(i+1)&63]
}

// A calibration is the median of rounds, each of some calls: what interrupts one is not
// taken for the cost of a probe.
const (
	calibrationRounds = 21
	calibrationCalls  = 400
)

// callNs is what a call of probedHere takes, in ns.
func callNs() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rounds := make([]float64, calibrationRounds)
	sink := byte(0)
	for r := range rounds {
		begin := time.Now()
		for i := range calibrationCalls {
			sink += probedHere(i)
		}
		rounds[r] = float64(time.Since(begin).Nanoseconds()) / calibrationCalls
	}
	runtime.KeepAlive(sink)
	slices.Sort(rounds)
	return rounds[len(rounds)/2]
}

// ExceptionNs measures the cost of a probe without its program, in ns. It measures an entry; a
// return costs about as much.
func (p *Probes) ExceptionNs() (float64, error) {
	maps, err := (&process.Process{Pid: os.Getpid()}).Maps()
	if err != nil {
		return 0, err
	}
	at := uint64(reflect.ValueOf(probedHere).Pointer())
	code, ok := symbolize.FindMapping(maps, at)
	if !ok {
		return 0, errors.New("own code not found")
	}
	executable, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	bare := callNs()
	// AllocatorReport does nothing for threads that are not recorded.
	var l link.Link
	if offset := at - code.Start + code.Offset; p.How == privilege.AttachMulti {
		l, err = executable.UprobeMulti(
			nil,
			p.Objects.AllocatorReport,
			&link.UprobeMultiOptions{Addresses: []uint64{offset}, PID: uint32(os.Getpid())},
		)
	} else {
		l, err = executable.Uprobe(
			"",
			p.Objects.AllocatorReport,
			&link.UprobeOptions{Address: offset, PID: os.Getpid()},
		)
	}
	if err != nil {
		return 0, err
	}
	probed := callNs()
	return max(0, probed-bare), l.Close()
}

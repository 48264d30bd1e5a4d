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

// A probe hit costs the target an exception and the run of a BPF program. The kernel measures the
// program's run time (runtimes.go). To measure the exception, gpurec calls one of its own functions
// with and without a probe whose program returns at once. The result is a lower bound: a loop does
// not show the cache and branch predictor misses that an exception causes.

// calibrationTarget is the function that is probed. Like most driver functions it begins with
// saving the frame pointer, an instruction that the kernel emulates instead of single-stepping.
// Without nosplit it would begin with a check of the stack's size.
//
//go:nosplit
//go:noinline
func calibrationTarget(i int) byte {
	var frame [64]byte
	frame[i&63] = byte(i)
	return frame[(i+1)&63]
}

// A calibration is the median of several rounds, so that interrupts do not distort the result.
const (
	calibrationRounds        = 21
	callsPerCalibrationRound = 400
)

// measureTargetCallNs returns the duration of one call of calibrationTarget, in nanoseconds.
func measureTargetCallNs() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	rounds := make([]float64, calibrationRounds)
	sink := byte(0)
	for r := range rounds {
		begin := time.Now()
		for i := range callsPerCalibrationRound {
			sink += calibrationTarget(i)
		}
		rounds[r] = float64(time.Since(begin).Nanoseconds()) / callsPerCalibrationRound
	}
	runtime.KeepAlive(sink)
	slices.Sort(rounds)
	return rounds[len(rounds)/2]
}

// MeasureExceptionNs measures the cost of a probe hit without its BPF program, in nanoseconds. It
// measures an entry probe; a return probe costs about as much.
func (p *Probes) MeasureExceptionNs() (float64, error) {
	maps, err := (&process.Process{Pid: os.Getpid()}).Maps()
	if err != nil {
		return 0, err
	}
	at := uint64(reflect.ValueOf(calibrationTarget).Pointer())
	code, ok := symbolize.FindMapping(maps, at)
	if !ok {
		return 0, errors.New("gpurec's own code is not in its mappings")
	}
	executable, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	bare := measureTargetCallNs()
	// The AllocatorReport program returns at once for threads without recorded state.
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
	probed := measureTargetCallNs()
	return max(0, probed-bare), l.Close()
}

//go:build linux

package probe

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/ring"
	"github.com/gpurec/gpurec/record/unwind"
	"github.com/gpurec/gpurec/symbolize"
)

// The self-test unwinds a known stack, which is gpurec's own. Like a recorded stack, it passes a
// probe, the OpenTelemetry profiler's programs and the ring buffer.

// selfTestLeaf, selfTestMiddle and selfTestOuter call each other; the self-test finds them in
// the unwound stack.
//
//go:noinline
func selfTestLeaf() int { return selfTestDepth }

//go:noinline
func selfTestMiddle() int { return selfTestLeaf() + 1 }

//go:noinline
func selfTestOuter() int { return selfTestMiddle() + 1 }

// selfTestDepth is a variable, so that the compiler cannot compute the results of the functions
// above and remove their calls.
var selfTestDepth = 0

// selfTestChain lists functions that the stack must contain, leaf first. selfTestMiddle is missing
// on purpose: Go code is unwound by frame pointers, and at the leaf's first instruction the frame
// pointer is still the caller's.
var selfTestChain = []string{"probe.selfTestLeaf", "probe.selfTestOuter", "runtime.goexit"}

// SelfTestUnwinding unwinds a known stack of this process. It returns an error that describes the
// first function that is missing from the result.
func SelfTestUnwinding(p *Probes, u *unwind.Unwinder) error {
	chain, err := unwindOwnStack(p, u)
	if err != nil {
		return fmt.Errorf("self-test of stack unwinding: %w", err)
	}
	next := 0
	for _, name := range chain {
		if next < len(selfTestChain) && strings.HasSuffix(name, selfTestChain[next]) {
			next++
		}
	}
	if next < len(selfTestChain) {
		return fmt.Errorf(
			"self-test of stack unwinding: function %s is missing from the stack %s",
			selfTestChain[next],
			strings.Join(chain, " < "),
		)
	}
	return nil
}

// unwindOwnStack returns the function names of an unwound stack of this process, leaf first.
func unwindOwnStack(p *Probes, u *unwind.Unwinder) ([]string, error) {
	pid := os.Getpid()
	self := &process.Process{Pid: pid}
	maps, err := self.Maps()
	if err != nil {
		return nil, err
	}
	leaf := uint64(reflect.ValueOf(selfTestLeaf).Pointer())
	code, ok := symbolize.FindMapping(maps, leaf)
	if !ok {
		return nil, errors.New("gpurec's own code is not in its mappings")
	}
	u.Add(pid)
	defer u.Forget(pid)
	if u.Sync(pid, []unwind.Mapping{{Start: code.Start, End: code.End}}, SyncTimeout, nil) > 0 {
		return nil, errors.New("the unwind tables of gpurec were not ready in time")
	}
	if err := p.AddTarget(pid); err != nil {
		return nil, err
	}
	defer p.RemoveTarget(pid)
	remove, err := p.probeOwnInstruction(leaf - code.Start + code.Offset)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread's state is deleted below
		defer runtime.UnlockOSThread()
		selfTestOuter()
		// The probed instruction has no return probe that would remove the open call.
		_ = p.Objects.Threads.Delete(uint64(pid)<<32 | uint64(unix.Gettid()))
	}()
	<-done
	if err := remove(); err != nil {
		return nil, err
	}
	return p.readOwnStack(u, leaf)
}

// probeOwnInstruction probes an instruction of this program as if it were a CUDA call. remove
// removes the probe and resets the counters that it changed.
func (p *Probes) probeOwnInstruction(fileOffset uint64) (remove func() error, err error) {
	executable, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	cookie := slices.IndexFunc(
		bpf.CallTable,
		func(c bpf.ProbedFunction) bool { return c.Class == bpf.CudaCallClassCLASS_MEMORY },
	) * bpf.CookiesPerFunction
	var l link.Link
	if p.How == privilege.AttachMulti {
		l, err = executable.UprobeMulti(nil, p.Objects.CallEnter, &link.UprobeMultiOptions{
			Addresses: []uint64{fileOffset}, Cookies: []uint64{uint64(cookie)}, PID: uint32(os.Getpid()),
		})
	} else {
		l, err = executable.Uprobe(
			"",
			p.Objects.CallEnter,
			&link.UprobeOptions{Address: fileOffset, Cookie: uint64(cookie), PID: os.Getpid()},
		)
	}
	if err != nil {
		return nil, err
	}
	return func() error {
		err := l.Close()
		var zero []bpf.CudaClassStats
		if lerr := p.Objects.Stats.Lookup(uint32(bpf.CudaCallClassCLASS_MEMORY), &zero); lerr != nil {
			return errors.Join(err, lerr)
		}
		clear(zero)
		return errors.Join(err, p.Objects.Stats.Put(uint32(bpf.CudaCallClassCLASS_MEMORY), zero))
	}, nil
}

// readOwnStack reads the stack from the ring buffer and returns its function names. It discards all
// other records. If Go has to grow the goroutine's stack, as under the race detector, it enters the
// leaf twice, and the first entry would be recorded as a call without a return.
func (p *Probes) readOwnStack(u *unwind.Unwinder, leaf uint64) ([]string, error) {
	reader, err := ringbuf.NewReader(p.Objects.Events)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	reader.SetDeadline(time.Now())
	var chain []string
	for {
		record, err := reader.Read()
		if err != nil && chain == nil {
			return nil, errors.New("no stack was unwound")
		} else if err != nil {
			return chain, nil
		}
		e := (*bpf.CudaUnwoundEvent)(unsafe.Pointer(&record.RawSample[0]))
		isStack := len(record.RawSample) >= int(unsafe.Sizeof(*e)) &&
			bpf.CudaRecordKind(e.Kind) == bpf.CudaRecordKindRECORD_UNWOUND
		if !isStack || chain != nil {
			continue
		}
		words := ring.StackWords(record.RawSample[unsafe.Sizeof(*e):], int(e.Words))
		frames := u.Frames(os.Getpid(), words[min(int(e.KernelWords), len(words)):], nil)
		if len(frames) == 0 {
			return nil, fmt.Errorf("the stack has no frames (%s, error %d)", unwind.TruncationCause(e.Error), e.Error)
		}
		for _, f := range frames { // the Go runtime knows the names of its functions
			name := "?"
			if fn := runtime.FuncForPC(uintptr(leaf + f.Addr - frames[0].Addr)); fn != nil {
				name = fn.Name()
			}
			chain = append(chain, name)
		}
	}
}

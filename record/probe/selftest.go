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

// The self-test unwinds a stack that is known: gpurec's own. It goes all the way that a
// recorded stack goes, from a probe through the profiler's programs and the ring buffer
// to frames.

// These functions call each other in this order and are found again in the stack.
//
//go:noinline
func selfTestLeaf() int { return selfTestDepth }

//go:noinline
func selfTestMiddle() int { return selfTestLeaf() + 1 }

//go:noinline
func selfTestOuter() int { return selfTestMiddle() + 1 }

// selfTestDepth is a variable so that the compiler cannot know what the functions return.
var selfTestDepth = 0

// selfTestChain are functions that the stack must have, leaf first. The leaf's caller is
// not among them: Go code is unwound by frame pointers, which are the caller's where the
// leaf is probed, at its first instruction.
var selfTestChain = []string{"probe.selfTestLeaf", "probe.selfTestOuter", "runtime.goexit"}

// SelfTest unwinds a known stack of this process and returns what was wrong with the result.
func SelfTest(p *Probes, u *unwind.Unwinder) error {
	chain, err := ownStack(p, u)
	if err != nil {
		return fmt.Errorf("self-test of the unwinder: %w", err)
	}
	next := 0
	for _, name := range chain {
		if next < len(selfTestChain) && strings.HasSuffix(name, selfTestChain[next]) {
			next++
		}
	}
	if next < len(selfTestChain) {
		return fmt.Errorf(
			"self-test of the unwinder: the stack is %s, without %s in its place",
			strings.Join(chain, " < "),
			selfTestChain[next],
		)
	}
	return nil
}

// ownStack returns the functions of a stack of this process.
func ownStack(p *Probes, u *unwind.Unwinder) ([]string, error) {
	pid := os.Getpid()
	self := &process.Process{Pid: pid}
	maps, err := self.Maps()
	if err != nil {
		return nil, err
	}
	leaf := uint64(reflect.ValueOf(selfTestLeaf).Pointer())
	code, ok := symbolize.FindMapping(maps, leaf)
	if !ok {
		return nil, errors.New("own code not found")
	}
	u.Add(pid)
	defer u.Forget(pid)
	if u.Sync(pid, []unwind.Mapping{{Start: code.Start, End: code.End}}, SyncTimeout, nil) > 0 {
		return nil, errors.New("own code was not read in time")
	}
	if err := p.Target(pid); err != nil {
		return nil, err
	}
	defer p.Forget(pid)
	remove, err := p.probeOwn(leaf - code.Start + code.Offset)
	if err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the state of this thread is removed below
		defer runtime.UnlockOSThread()
		selfTestOuter()
		_ = p.Objects.Threads.Delete(uint64(pid)<<32 | uint64(unix.Gettid())) // the call has no return probe
	}()
	<-done
	if err := remove(); err != nil {
		return nil, err
	}
	return p.readOwnStack(u, leaf)
}

// probeOwn probes an instruction of this program as if it were a CUDA call, and returns
// how to end that and to balance the books.
func (p *Probes) probeOwn(fileOffset uint64) (remove func() error, err error) {
	executable, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	cookie := slices.IndexFunc(
		bpf.Calls,
		func(c bpf.Call) bool { return c.Class == bpf.CudaCallClassCLASS_MEMORY },
	) * bpf.CookiesPerCall
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

// readOwnStack takes the stack out of the ring buffer and names its functions. It empties the
// buffer: where Go has to grow the stack, as under the race detector, it enters the function twice,
// and the first entry would be recorded as a call that never returned.
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
		words := ring.Words(record.RawSample[unsafe.Sizeof(*e):], int(e.Words))
		frames := u.Frames(os.Getpid(), words[min(int(e.KernelWords), len(words)):])
		if len(frames) == 0 {
			return nil, fmt.Errorf("the stack has no frames (%s, error %d)", unwind.Why(e.Error), e.Error)
		}
		for _, f := range frames { // Go knows its functions without symbols
			name := "?"
			if fn := runtime.FuncForPC(uintptr(leaf + f.Addr - frames[0].Addr)); fn != nil {
				name = fn.Name()
			}
			chain = append(chain, name)
		}
	}
}

//go:build linux

package switches

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/privilege"
)

// ErrNoBTF is the reason if the kernel has no type information (CONFIG_DEBUG_INFO_BTF).
var ErrNoBTF = errors.New("the kernel has no BTF type information (/sys/kernel/btf/vmlinux)")

// ErrTooOld is the reason if the kernel lacks a function that the program calls.
var ErrTooOld = errors.New("needs Linux 5.15 or newer")

// MaxThreads is the largest number of watched threads.
const MaxThreads = int(bpf.HostSwitchSwitchLimitsSWITCH_THREADS)

// Accounts watches threads. Drain, SetMinWait, StartWakings, StopWakings and Close must not run concurrently with each
// other. The other methods are safe for concurrent use.
type Accounts struct {
	objects struct {
		bpf.HostSwitchMaps
		bpf.HostSwitchVariables
		OnSwitch *ebpf.Program `ebpf:"on_switch"`
	}
	link    link.Link
	wakings wakings
	reader  *ringbuf.Reader
	record  ringbuf.Record
}

// Wait is a time in which a thread was on no processor.
type Wait = bpf.HostSwitchSwitchWait

// Open starts the program. Waits of at least minWait have records. Errors wrap ErrNoBTF or ErrTooOld, or are a
// *privilege.Error.
func Open(minWait time.Duration) (*Accounts, error) {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoBTF
	}
	a := &Accounts{}
	err := a.load(minWait, true)
	if err != nil && !errors.Is(err, unix.EPERM) {
		err = a.load(minWait, false) // before Linux 5.18
	}
	switch {
	case errors.Is(err, unix.EPERM):
		if have, cerr := privilege.ReadEffective(); cerr == nil {
			return nil, have.ExplainLoadError(err)
		}
		return nil, err
	case err != nil && host.IsOlderRelease(host.KernelRelease(), 5, 15):
		return nil, fmt.Errorf("%w: %w", ErrTooOld, err)
	case err != nil:
		return nil, err
	}
	a.link, err = link.AttachTracing(link.TracingOptions{Program: a.objects.OnSwitch})
	if err == nil {
		a.reader, err = ringbuf.NewReader(a.objects.Waits)
	}
	if err != nil {
		a.Close()
		return nil, fmt.Errorf("attach to context switches: %w", err)
	}
	return a, nil
}

// load loads the program. hasState says that the tracepoint has the state of the leaving thread.
func (a *Accounts) load(minWait time.Duration, hasState bool) error {
	spec, err := bpf.LoadHostSwitch()
	if err != nil {
		return fmt.Errorf("read BPF program: %w", err)
	}
	has := uint8(0)
	if hasState {
		has = 1
	}
	err = errors.Join(
		spec.Variables["has_state_argument"].Set(has),
		spec.Variables["first_wait_ns"].Set(uint64(minWait)),
		spec.Variables["min_wait_ns"].Set(uint64(minWait)),
	)
	if err == nil {
		err = spec.LoadAndAssign(&a.objects, nil)
	}
	if err != nil {
		return fmt.Errorf("load BPF program: %w", err)
	}
	return nil
}

// Close stops the program.
func (a *Accounts) Close() {
	if a.reader != nil {
		a.reader.Close()
	}
	a.StopWakings()
	a.wakings.close()
	if a.link != nil {
		a.link.Close()
	}
	a.objects.HostSwitchMaps.Close()
	if a.objects.OnSwitch != nil {
		a.objects.OnSwitch.Close()
	}
}

// Watch begins to account a thread from sinceNs on, CLOCK_MONOTONIC. state is the kernel's state of the
// thread at that time, 0: it is on a processor or in a run queue. It counts if the thread waits then.
// The error is unix.E2BIG if MaxThreads are watched.
func (a *Accounts) Watch(tid int, sinceNs int64, state uint32) error {
	t := bpf.HostSwitchSwitchThread{SinceNs: uint64(sinceNs), State: state}
	if err := a.objects.Watched.Put(uint32(tid), &t); err != nil {
		return fmt.Errorf("watch thread %d: %w", tid, err)
	}
	return nil
}

// Forget ends the account of a thread.
func (a *Accounts) Forget(tid int) {
	_ = a.objects.Watched.Delete(uint32(tid)) // it is there, or was never
}

// SetMinWait sets the shortest wait that has a record. Waits that are shorter, but would have had one at
// the beginning, are counted in Counters.LeftOut.
func (a *Accounts) SetMinWait(d time.Duration) error {
	if err := a.objects.MinWaitNs.Set(uint64(d)); err != nil {
		return fmt.Errorf("set shortest wait: %w", err)
	}
	return nil
}

// Drain calls visit for each wait that has ended since the last call. visit must not keep the wait.
func (a *Accounts) Drain(visit func(*Wait)) error {
	a.reader.SetDeadline(time.Unix(1, 0))
	for {
		err := a.reader.ReadInto(&a.record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read waits: %w", err)
		}
		if w, ok := parseWait(a.record.RawSample); ok {
			visit(w)
		}
	}
}

// Counters are totals of the machine.
type Counters struct {
	Switches, TargetSwitches int64 // of all threads, of watched threads
	// SwitchNs and TargetSwitchNs are the mean run times of the program for other threads and for
	// watched threads, ns, measured on a sample. 0: none was measured.
	SwitchNs, TargetSwitchNs float64
	Waits                    int64 // long waits, recorded or lost
	Lost                     int64 // long waits without a record
	LeftOut                  int64 // waits that had no record because of SetMinWait
	// Missed counts times of threads that are in no sum, because the kernel had no event of a switch.
	Missed int64
	// Wakings and TargetWakings count wake-ups of all threads and of watched threads while StartWakings was in
	// effect. WakingNs and TargetWakingNs are as SwitchNs and TargetSwitchNs.
	Wakings, TargetWakings   int64
	WakingNs, TargetWakingNs float64

	wakings timedRuns // of other threads
}

// WakingNsSince returns WakingNs of the time since other totals. 0: none was measured.
func (c *Counters) WakingNsSince(last *Counters) float64 {
	since := timedRuns{c.wakings.runs - last.wakings.runs, c.wakings.ns - last.wakings.ns}
	return since.meanNs()
}

// Counters returns the totals so far.
func (a *Accounts) Counters() (Counters, error) {
	var cpus []bpf.HostSwitchSwitchCounters
	if err := a.objects.Counters.Lookup(uint32(0), &cpus); err != nil {
		return Counters{}, fmt.Errorf("read counters of switches: %w", err)
	}
	var c Counters
	var switches, targetSwitches, wakings, targetWakings timedRuns
	for i := range cpus {
		n := &cpus[i]
		c.Switches += int64(n.Switches)
		c.TargetSwitches += int64(n.TargetSwitches)
		c.Waits += int64(n.Waits)
		c.Lost += int64(n.Lost)
		c.LeftOut += int64(n.LeftOut)
		c.Missed += int64(n.Missed)
		c.Wakings += int64(n.Wakings)
		c.TargetWakings += int64(n.TargetWakings)
		switches.add(n.Timed, n.TimedNs)
		targetSwitches.add(n.TargetTimed, n.TargetTimedNs)
		wakings.add(n.WakingTimed, n.WakingTimedNs)
		targetWakings.add(n.TargetWakingTimed, n.TargetWakingTimedNs)
	}
	c.SwitchNs, c.TargetSwitchNs = switches.meanNs(), targetSwitches.meanNs()
	c.WakingNs, c.TargetWakingNs = wakings.meanNs(), targetWakings.meanNs()
	c.wakings = wakings
	return c, nil
}

// timedRuns are runs of a program whose time was measured.
type timedRuns struct{ runs, ns uint64 }

func (t *timedRuns) add(runs, ns uint64) { t.runs, t.ns = t.runs+runs, t.ns+ns }

// meanNs returns the mean time of a run, ns. 0: none was measured.
func (t *timedRuns) meanNs() float64 {
	if t.runs == 0 {
		return 0
	}
	return float64(t.ns) / float64(t.runs)
}

// isMissing reports whether a lookup found no entry.
func isMissing(err error) bool { return errors.Is(err, ebpf.ErrKeyNotExist) }

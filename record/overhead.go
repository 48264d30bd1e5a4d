//go:build linux

package record

import (
	"errors"
	"os"
	"reflect"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/symbolize"
)

// What a hit of a probe costs the program is the exception and the run of a BPF program.
// The kernel measures the latter (cost.go). For the former, a function of gpurec's own is
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

// exceptionNs measures what a probe costs without what its program does, in ns. Entries are
// measured; a return costs about as much.
func (p *probes) exceptionNs() (float64, error) {
	maps, err := (&process{pid: os.Getpid()}).maps()
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
	if offset := at - code.Start + code.Offset; p.how == AttachMulti {
		l, err = executable.UprobeMulti(nil, p.objects.AllocatorReport, &link.UprobeMultiOptions{Addresses: []uint64{offset}, PID: uint32(os.Getpid())})
	} else {
		l, err = executable.Uprobe("", p.objects.AllocatorReport, &link.UprobeOptions{Address: offset, PID: os.Getpid()})
	}
	if err != nil {
		return 0, err
	}
	probed := callNs()
	return max(0, probed-bare), l.Close()
}

// hits are how often probes of one thread were hit, at entries and returns.
type hits struct {
	launches, allocator, others int64
}

func (h *hits) all() int64 { return h.launches + h.allocator + h.others }

// hitRates are the hits of the busiest thread, a second.
type hitRates struct {
	launches, allocator, others float64
}

// rates returns how often the probes of the busiest thread were hit since the last time.
// Which thread makes the calls that are only counted is not known: all are taken for its.
// Hits whose calls were lost are taken to be spread as the others are.
func (s *scribe) rates(now time.Time) hitRates {
	var busiest hits
	for _, t := range s.threads {
		if t.hits.all() > busiest.all() {
			busiest = t.hits
		}
		t.hits = hits{}
	}
	sum := s.accounts.sums()
	counted, written, lost := float64(sum.counted-s.rated.counted), float64(sum.written-s.rated.written), float64(sum.lost-s.rated.lost)
	perSecond := 1 / max(1e-3, now.Sub(s.ratedAt).Seconds())
	s.rated, s.ratedAt = sum, now
	scale := perSecond
	if written > 0 {
		scale *= 1 + lost/written
	}
	return hitRates{
		launches: float64(busiest.launches) * scale, allocator: float64(busiest.allocator) * scale, others: float64(busiest.others)*scale + counted*perSecond,
	}
}

// accountSums are some of the books over all classes.
type accountSums struct{ counted, written, lost int64 }

func (a *accounts) sums() (sum accountSums) {
	for class := range a.last {
		sum.counted += a.counted[class]
		sum.written += a.written[class]
		for _, n := range a.last[class].Lost {
			sum.lost += int64(n)
		}
	}
	return sum
}

// costMeter measures what the probes cost.
type costMeter struct {
	exceptionNs float64
	ns, runs    int64   // of BPF programs at the last look
	programNs   float64 // of one run, as last measured
}

// hitNs is what a hit has cost since the last look. Where the kernel measured no run
// meanwhile, programs are taken to run as long as before.
// ns and runs are the programs' run times and runs, since they were loaded.
func (m *costMeter) hitNs(ns, runs int64) float64 {
	if d := runs - m.runs; d > 0 {
		m.programNs = float64(ns-m.ns) / float64(d)
	}
	m.ns, m.runs = ns, runs
	return m.exceptionNs + m.programNs
}

// loadOf makes a load of the rates of hits and the cost of one.
func loadOf(r hitRates, hitNs float64) load {
	pct := func(perSecond float64) float64 { return perSecond * hitNs / 1e9 * 100 }
	return load{
		overheadPct: pct(r.launches + r.allocator + r.others), othersPct: pct(r.allocator + r.others), allocatorPct: pct(r.allocator), hitNs: hitNs,
	}
}

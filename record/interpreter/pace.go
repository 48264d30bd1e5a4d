//go:build linux

package interpreter

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
)

// Rates of readings per second.
const (
	AutoHz = 200
	FullHz = 1000
	minHz  = 10
)

const (
	// maxCost is the share of one CPU above which the rate falls to one that costs goodCost. It rises again below
	// minCost.
	maxCost, goodCost, minCost = 0.005, 0.0045, 0.003
	// wakeFactor is the CPU time of a wake-up of a goroutine as a multiple of that of a thread, since it wakes
	// other threads. It was 2.7 to 3.5 (2026-11-23).
	wakeFactor = 3.5
	// wakeSamples is the number of wake-ups that measureWake takes, wakeInterval the time between them. After
	// shorter times, wake-ups are cheaper.
	wakeSamples  = 8
	wakeInterval = time.Second / AutoHz
)

// pace has the interval of readings. All processes are read at the same times, so that they share wake-ups.
type pace struct {
	isFull     bool
	intervalNs atomic.Int64
	longestNs  atomic.Int64
	// wakeNs is the estimated CPU time of a wake-up, wakes their number.
	wakeNs, wakes atomic.Int64

	// At the last adapt, in ns.
	adaptedNs, costNs int64
}

func newPace(isFull bool) *pace {
	p := &pace{isFull: isFull}
	hz := AutoHz
	if isFull {
		hz = FullHz
	}
	p.intervalNs.Store(int64(time.Second) / int64(hz))
	p.longestNs.Store(p.intervalNs.Load())
	return p
}

// measureWake measures the price of a wake-up. It takes 40 ms.
func (p *pace) measureWake() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)
	for range wakeSamples {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: wakeInterval.Nanoseconds()}, nil) // a signal ends it early
	}
	each := float64(clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)-before) / wakeSamples
	p.wakeNs.Store(int64(wakeFactor * each))
}

// next returns the time of the next reading after now, on CLOCK_MONOTONIC in ns. Each reading is at a random
// time in the first half of its interval, so that readings do not keep pace with a program.
func (p *pace) next(now int64) int64 {
	interval := p.intervalNs.Load()
	tick := now/interval + 1
	return tick*interval + int64(mix(uint64(tick))%uint64(interval/2))
}

// mix returns a random number for a number: the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// adapt adapts the interval to the cost since the last call. wakes is the number of wake-ups since then,
// readNs the CPU time of all readings.
func (p *pace) adapt(now, wakes, readNs int64) {
	p.wakes.Add(wakes)
	cost := readNs + p.wakeCostNs()
	elapsed, spent := now-p.adaptedNs, cost-p.costNs
	isFirst := p.adaptedNs == 0
	p.adaptedNs, p.costNs = now, cost
	if p.isFull || isFirst || elapsed <= 0 {
		return
	}
	share, interval := float64(spent)/float64(elapsed), p.intervalNs.Load()
	if share > minCost && share <= maxCost {
		return
	}
	interval = int64(float64(interval) * share / goodCost)
	interval = min(max(interval, int64(time.Second)/AutoHz), int64(time.Second)/minHz)
	p.intervalNs.Store(interval)
	p.longestNs.Store(max(interval, p.longestNs.Load()))
}

// wakeCostNs estimates the CPU time of all wake-ups.
func (p *pace) wakeCostNs() int64 { return p.wakes.Load() * p.wakeNs.Load() }

func (p *pace) hz() (now, lowest float64) {
	return float64(time.Second) / float64(p.intervalNs.Load()), float64(time.Second) / float64(p.longestNs.Load())
}

//go:build linux

package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// recorderMemoryLimitBytes is the recorder's Go memory limit. The garbage collector runs more often
// near the limit, so that the recorder takes little memory from the recorded processes. Without kept unwind tables, the
// recorder needs 100 MiB to read those of PyTorch. If the limit were below what the recorder needs, the collector would
// run all the time.
const recorderMemoryLimitBytes = 160 << 20

// finishMemoryLimitBytes is the limit while the file is finished. Segments of a long recording have thousands of row
// groups: with 200 rotations and the lower limit, this took three times as long.
const finishMemoryLimitBytes = 384 << 20

// recorderProcessors is the largest number of processors that run the recorder's Go code. On a large
// machine, the garbage collector would otherwise use all idle ones, and each wake-up would wake threads that look for
// work: at 1,000 calls/s the recorder took a third more CPU time with 4 than with 2.
const recorderProcessors = 2

// limitProcessors limits the processors that run Go code, unless the environment variable GOMAXPROCS
// does.
func limitProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(min(runtime.GOMAXPROCS(0), recorderProcessors))
	}
}

// setGoMemoryLimit sets the Go memory limit, unless the environment variable GOMEMLIMIT sets one.
func setGoMemoryLimit(limitBytes int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limitBytes)
	}
}

const (
	// adaptInterval is the time between two decisions about processors.
	adaptInterval = time.Second
	// busyShare is the share of a processor above which the recorder uses recorderProcessors at once. It uses one
	// after calmIntervals below calmShare: a wake-up then wakes no second thread.
	busyShare, calmShare = 0.15, 0.12
	calmIntervals        = 3
	// freeAfter is the number of intervals after which the memory that only the start needed is freed.
	freeAfter = 8
)

// adaptToNeed adapts processors and memory of a recorder to its work, until the returned function is called. After that,
// they suffice to finish the file.
func adaptToNeed() (stop func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		most := runtime.GOMAXPROCS(0)
		defer runtime.GOMAXPROCS(most)
		a := processorPolicy{most: most, mayLower: os.Getenv("GOMAXPROCS") == "", now: most}
		before := cpuTime()
		tick := time.NewTicker(adaptInterval)
		defer tick.Stop()
		for n := 1; ; n++ {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if n == freeAfter {
				debug.FreeOSMemory()
			}
			now := cpuTime()
			if wanted, isNew := a.decide(float64(now-before) / float64(adaptInterval)); isNew {
				runtime.GOMAXPROCS(wanted)
			}
			before = now
		}
	})
	return func() {
		close(ended)
		running.Wait()
		setGoMemoryLimit(finishMemoryLimitBytes)
	}
}

// processorPolicy decides how many processors run Go code.
type processorPolicy struct {
	most, now int
	mayLower  bool
	calm      int // intervals in a row
}

// decide returns the number of processors after an interval with a share of a processor in use, and whether it differs
// from the number before.
func (p *processorPolicy) decide(share float64) (wanted int, isNew bool) {
	if p.calm++; share >= calmShare {
		p.calm = 0
	}
	before := p.now
	switch {
	case share > busyShare:
		p.now = p.most
	case p.calm >= calmIntervals && p.mayLower:
		p.now = 1
	}
	return p.now, p.now != before
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0 // cannot happen for this process
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

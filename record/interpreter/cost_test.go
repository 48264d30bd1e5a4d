//go:build linux

package interpreter

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkRecorder reports the CPU time of this process as a share of one core, and that by Cost.
func BenchmarkRecorder(b *testing.B) {
	for _, isFull := range []bool{false, true} {
		for _, processes := range []int{1, 4} {
			b.Run(fmt.Sprintf("full=%v/processes=%d", isFull, processes), func(b *testing.B) {
				var pids []int
				for range processes {
					p := start(b, interpreters(b)[0], "testdata/gilturns.py", "3", "60")
					pids = append(pids, p.pid)
				}
				r := record(
					b,
					Options{IsFull: isFull, Threads: func() []uint64 { return listThreads(pids[0])[:1] }},
					pids...)
				before, cost, begin := cpuTimeOfProcess(b), r.Cost(), time.Now()
				for b.Loop() {
					time.Sleep(8 * time.Second)
				}
				took := time.Since(begin).Seconds()
				b.ReportMetric(100*(cpuTimeOfProcess(b)-before).Seconds()/took, "%cpu")
				b.ReportMetric(100*(r.Cost()-cost).Seconds()/took, "%cost")
				hz, _ := r.Hz()
				b.ReportMetric(hz, "Hz")
				b.ReportMetric(float64(r.pace.wakeNs.Load()), "wake-ns")
			})
		}
	}
}

// cpuTimeOfProcess returns the CPU time of this process.
func cpuTimeOfProcess(b *testing.B) time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

//go:build linux

package unwind

import (
	"context"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/elastic/go-perf"
)

// mappingWatch reports new executable mappings of all processes: libraries that are opened later,
// and code of JIT compilers. The profiler itself only checks when a stack ends in unknown memory,
// and less and less often.
type mappingWatch struct {
	events []*perf.Event
	done   sync.WaitGroup
}

// watchMappings calls mapped with the pid for every new executable mapping, until ctx is done.
// Without the privilege for perf events it does nothing: stacks through new libraries are truncated
// for a longer time.
func watchMappings(ctx context.Context, mapped func(pid int)) *mappingWatch {
	w := new(mappingWatch)
	own := uint32(os.Getpid())
	cpus, err := ebpf.PossibleCPU() // all CPUs of the machine, also those that this process may not use
	if err != nil {
		return w
	}
	for cpu := range cpus {
		attr := &perf.Attr{Options: perf.Options{Mmap: true, Watermark: true}}
		if perf.Dummy.Configure(attr) != nil {
			return w
		}
		attr.SetSamplePeriod(1)
		attr.SetWakeupWatermark(1)
		event, err := perf.Open(attr, perf.AllThreads, cpu, nil)
		if err != nil {
			continue // the CPU is offline
		}
		if event.MapRing() != nil || event.Enable() != nil {
			event.Close()
			continue
		}
		w.events = append(w.events, event)
		w.done.Go(func() {
			for {
				record, err := event.ReadRecord(ctx)
				if err != nil {
					return
				}
				if m, ok := record.(*perf.MmapRecord); ok && m.Pid != own {
					mapped(int(m.Pid))
				}
			}
		})
	}
	return w
}

// close waits until the goroutines of the watch have ended, and closes its perf events. The context
// of watchMappings must be done.
func (w *mappingWatch) close() {
	w.done.Wait()
	for _, e := range w.events {
		e.Close()
	}
}

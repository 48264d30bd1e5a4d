//go:build linux

package unwind

import (
	"context"
	"os"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/elastic/go-perf"
)

// watch tells of executable memory that processes map: libraries opened later, code of
// just-in-time compilers. The profiler itself looks only when a stack ends in unknown
// memory, and the more seldom the more often that happens.
type watch struct {
	events []*perf.Event
	done   sync.WaitGroup
}

// watchMappings calls mapped with the pid for every new executable mapping. Without the
// right to it, it does nothing: stacks through new libraries are then broken longer.
func watchMappings(ctx context.Context, mapped func(pid int)) *watch {
	w := new(watch)
	own := uint32(os.Getpid())
	cpus, err := ebpf.PossibleCPU() // all of the machine's, not only those that we may run on
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
			continue // it is offline
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

// close ends the watch; the context must be done.
func (w *watch) close() {
	w.done.Wait()
	for _, e := range w.events {
		e.Close()
	}
}

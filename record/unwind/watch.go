//go:build linux

package unwind

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/elastic/go-perf"

	"github.com/gpurec/gpurec/internal/pollfd"
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
		if err := w.follow(ctx, event, func(m *perf.MmapRecord) {
			if m.Pid != own {
				mapped(int(m.Pid))
			}
		}); err != nil {
			event.Close()
			continue
		}
		w.events = append(w.events, event)
	}
	return w
}

// follow calls mapped for each new mapping of an event, until ctx is done.
func (w *mappingWatch) follow(ctx context.Context, event *perf.Event, mapped func(m *perf.MmapRecord)) error {
	fd, err := event.FD()
	if err != nil {
		return err
	}
	waiter, err := pollfd.New(fd)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = waiter.Close() })
	read := func() {
		for event.HasRecord() {
			record, err := event.ReadRecord(ctx)
			if err != nil {
				return
			}
			if m, ok := record.(*perf.MmapRecord); ok {
				mapped(m)
			}
		}
	}
	w.done.Go(func() {
		for waiter.Wait(time.Time{}, read) {
		}
	})
	return nil
}

// close waits until the goroutines of the watch have ended, and closes its perf events. The context
// of watchMappings must be done.
func (w *mappingWatch) close() {
	w.done.Wait()
	for _, e := range w.events {
		e.Close()
	}
}

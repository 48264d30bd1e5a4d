//go:build linux

package ps

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/nvml"
	"github.com/gpurec/gpurec/record/rows"
)

// Follow lists the processes that use CUDA at every interval until stop is closed, and samples the GPUs. It attaches
// no probes. consume gets rows as a recorder writes them, of one class: GPUs, processes and their ends, samples of
// NVML, and a note if there is no NVML. Calls of consume do not overlap. keep selects the processes.
func Follow(
	stop <-chan struct{}, every time.Duration, keep func(*Process) bool, consume func(format.Class, []format.Row),
) {
	c := clock.New()
	f := follower{keep: keep, known: make(map[int]Process)}
	sampled := make(chan []format.Row, 64)
	sender := rows.NewSender(sampled)
	var helpers sync.WaitGroup
	sampler, err := nvml.Open()
	if err != nil {
		f.send(consume, []format.Row{
			{Kind: format.KindNote, Name: "nvml", StartNs: c.NowNs(), Message: err.Error(), Device: -1},
		})
	} else {
		defer sampler.Close()
		f.send(consume, sampler.DeviceRows(c.NowNs()))
		helpers.Go(func() { sampler.Run(c, every, sender, stop) })
	}
	defer func() { helpers.Wait(); sender.Close() }()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		f.send(consume, f.changes(List(sampler != nil), c.NowNs()))
		for isDue := false; !isDue; {
			select {
			case <-stop:
				return
			case batch := <-sampled:
				f.send(consume, batch)
			case <-tick.C:
				isDue = true
			}
		}
	}
}

// follower knows the processes of the latest list.
type follower struct {
	keep  func(*Process) bool
	known map[int]Process
}

// send passes rows of one class on.
func (f *follower) send(consume func(format.Class, []format.Row), batch []format.Row) {
	if len(batch) > 0 {
		consume(format.ClassOf(batch[0].Kind), batch)
	}
}

// changes returns rows of the processes that are new in a list, and of those that have ended.
func (f *follower) changes(list Listing, nowNs int64) (changes []format.Row) {
	current := make(map[int]Process)
	for _, p := range list.Processes {
		if f.keep(&p) {
			current[p.Pid] = p
		}
	}
	for _, pid := range list.Unanswered {
		if p, ok := f.known[pid]; ok {
			current[pid] = p
		}
	}
	for pid, p := range f.known {
		if now, ok := current[pid]; !ok || now.StartedUnixNs != p.StartedUnixNs {
			changes = append(changes, processRow(&p, nowNs, nowNs))
		}
	}
	for pid, p := range current {
		if before, ok := f.known[pid]; !ok || before.StartedUnixNs != p.StartedUnixNs {
			changes = append(changes, processRow(&p, nowNs, 0))
		}
	}
	f.known = current
	return changes
}

// processRow returns a row of kind process. exitNs is 0 for a process that runs.
func processRow(p *Process, nowNs, exitNs int64) format.Row {
	message, _ := json.Marshal(struct { // such values always encode
		Identity *format.Identity `json:"identity"`
		ExitNs   int64            `json:"exit_ns,omitempty"`
	}{&p.Identity, exitNs})
	return format.Row{
		Kind:    format.KindProcess,
		Pid:     int32(p.Pid),
		Name:    p.Command,
		StartNs: nowNs,
		Device:  -1,
		Message: string(message),
	}
}

//go:build linux

package sampling

import (
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/overhead"
)

// sampledClasses are the classes of kinds in notes.
var sampledClasses = map[overhead.Kinds]string{
	overhead.Launches: format.SampledLaunch, overhead.AllocatorEvents: format.SampledAllocator,
}

// kindNames are the names of kinds in warnings.
var kindNames = map[overhead.Kinds]string{
	overhead.Launches: "kernel launches", overhead.AllocatorEvents: "events of PyTorch's allocator",
}

// noteCallSwitch notes the time, on CLOCK_MONOTONIC, from which calls of some kinds are recorded, or not recorded.
func (l *overheadLimiter) noteCallSwitch(kinds overhead.Kinds, recorded bool, monotonicNs int64, pct float64) {
	for _, kind := range kinds.List() {
		l.noteSwitch(sampledClasses[kind], format.SampledCalls, recorded, monotonicNs, pct)
	}
}

// noteStackSwitch notes that stacks of launches are recorded from now on, or not.
func (l *overheadLimiter) noteStackSwitch(recorded bool, pct float64) {
	l.noteSwitch(format.SampledLaunch, format.SampledStacks, recorded, clock.ReadNs(unix.CLOCK_MONOTONIC), pct)
}

// noteSwitch notes the time from which a part of the calls is recorded, or not recorded.
func (l *overheadLimiter) noteSwitch(class, what string, recorded bool, monotonicNs int64, pct float64) {
	text, err := json.Marshal(
		format.Sampling{
			Class:          class,
			What:           what,
			Recorded:       recorded,
			OverheadPct:    format.RoundPct(pct),
			MaxOverheadPct: l.limitPct,
		},
	)
	if err != nil {
		return // plain values always encode
	}
	l.Recorder.Send([]format.Row{
		{
			Kind:    format.KindNote,
			Name:    format.NoteSampling,
			StartNs: l.Clock.UnixNs(uint64(monotonicNs)),
			Device:  -1,
			Message: string(text),
		},
	})
}

// warnAndNote warns the user and notes the text in the recording.
func (l *overheadLimiter) warnAndNote(pct float64, text string) {
	l.Warn(text)
	l.writeNote(NoteOverhead, pct, text)
}

// warnOfSampling warns that calls of some kinds, or their stacks, are sampled from now on, once for each kind.
func (l *overheadLimiter) warnOfSampling(kinds overhead.Kinds) {
	if kinds &^= l.warned; kinds == 0 {
		return
	}
	l.warned |= kinds
	var names []string
	for _, kind := range kinds.List() {
		names = append(names, kindNames[kind])
	}
	what := strings.Join(names, " and ")
	if !l.canDetach {
		what = "stacks of " + what
	}
	pct, share := l.governor.FullPct(), 100*l.governor.WindowShare()
	l.warnAndNote(pct, fmt.Sprintf(
		"probes take about %.1f %% of the busiest thread's time, so %s are recorded for about %.0f %% of the time "+
			"(--max-overhead %g%%; off records all)", pct, what, share, l.limitPct,
	))
}

// explainExceededLimit explains why the overhead cannot be kept below --max-overhead.
func (l *overheadLimiter) explainExceededLimit(m overhead.Measurement) string {
	text := fmt.Sprintf("probes still take about %.1f %% of the busiest thread's time, more than --max-overhead "+
		"%g%%: calls that are never sampled take about %.1f %%", l.governor.AveragePct(), l.limitPct, m.OthersPct)
	if events := m.AllocatorPct; !l.governor.Sampled().Has(overhead.AllocatorEvents) && events > m.OthersPct/4 {
		text += fmt.Sprintf(", and events of PyTorch's allocator %.1f %% (--allocator=light or off)", events)
	}
	return text
}

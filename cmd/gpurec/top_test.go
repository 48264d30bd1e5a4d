//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestLiveNumbersEqualTheRecording compares the lines of record --live=json with the recording of the same
// seconds.
func TestLiveNumbersEqualTheRecording(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	compareLiveNumbers(t, "6s")
}

// TestLiveNumbersEqualALongRecording compares the numbers of 30 seconds.
func TestLiveNumbersEqualALongRecording(t *testing.T) {
	testclass.Root(t)
	compareLiveNumbers(t, "30s")
}

func compareLiveNumbers(t *testing.T, duration string) {
	t.Helper()
	requireSimcuda(t, "storm", privilege.AttachMulti)
	dir := t.TempDir()
	pid, begin := startWaitingStorm(t, filepath.Join(dir, "ledger.tsv"))
	begin()
	path := filepath.Join(dir, "r.parquet")
	out, messages, code := runGpurec(
		t,
		"record",
		"-p",
		fmt.Sprint(pid),
		"-d",
		duration,
		"--live=json",
		"--max-overhead",
		"off",
		"--buffer",
		"256MiB",
		"-o",
		path,
	)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, messages)
	}
	rec, err := format.Open(path)
	must(t, err)
	defer rec.Close()
	bySecond := countBySecond(t, rec)
	var seen, want, all secondCounts
	var late, seconds int64
	for line := range strings.Lines(out) {
		var s live.Snapshot
		must(t, json.Unmarshal([]byte(line), &s))
		if len(s.Processes) == 0 {
			continue
		}
		var recorded secondCounts
		for at := s.FromNs / 1e9; at < s.ToNs/1e9; at++ {
			recorded.add(bySecond[at])
		}
		p := &s.Processes[0]
		length := (s.ToNs - s.FromNs) / 1e9
		got := secondCounts{
			p.Calls,
			p.Launches,
			p.CopiedBytes,
			p.AllocatedBytes,
			p.FreedBytes,
			int64(p.WaitPercent * 1e7 * float64(length)),
		}
		if got.exceeds(recorded) {
			t.Errorf("second %d: %+v; the recording has %+v", s.FromNs/1e9, got, recorded)
		}
		seen.add(got)
		want.add(recorded)
		late, seconds = s.Late, seconds+length
	}
	for _, c := range bySecond {
		all.add(c)
	}
	t.Logf("%+v in lines of %d s, %d calls late; the recording has %+v", seen, seconds, late, all)
	if seen.calls+late != all.calls {
		t.Errorf("%d calls in lines and %d late ones; the recording has %d", seen.calls, late, all.calls)
	}
	if late == 0 && (seen.copied != all.copied || seen.allocated != all.allocated || seen.freed != all.freed) {
		t.Errorf("%+v in lines; the recording has %+v", seen, all)
	}
	if diff := float64(want.waitNs-seen.waitNs) / float64(seconds) / 1e7; diff < -2 || diff > 2 {
		t.Errorf("waits took %d ns, the recording has %d: %.1f points less", seen.waitNs, want.waitNs, diff)
	}
	if seen.calls == 0 || seen.copied == 0 || seen.allocated == 0 || seen.waitNs == 0 {
		t.Errorf("%+v in\n%s", seen, out)
	}
	if lost := rec.Meta.Totals().Lost; lost > 0 {
		t.Errorf("%d calls lost", lost)
	}
}

// secondCounts are the counts of some seconds. waitNs is summed over threads.
type secondCounts struct{ calls, launches, copied, allocated, freed, waitNs int64 }

func (c *secondCounts) add(o secondCounts) {
	c.calls, c.launches, c.copied = c.calls+o.calls, c.launches+o.launches, c.copied+o.copied
	c.allocated, c.freed, c.waitNs = c.allocated+o.allocated, c.freed+o.freed, c.waitNs+o.waitNs
}

// exceeds reports whether a count is larger than that of o.
func (c *secondCounts) exceeds(o secondCounts) bool {
	return c.calls > o.calls || c.launches > o.launches || c.copied > o.copied || c.allocated > o.allocated ||
		c.freed > o.freed
}

// countBySecond counts the calls of a recording by the Unix second of their start, memory by that of its change, and
// waits by the seconds that they cover.
func countBySecond(t *testing.T, rec *format.Recording) map[int64]secondCounts {
	t.Helper()
	counts := make(map[int64]secondCounts)
	add := func(ns int64, c secondCounts) { c.add(counts[ns/1e9]); counts[ns/1e9] = c }
	must(t, rec.Rows(func(r *format.Row) error {
		c := secondCounts{calls: 1}
		switch r.Kind {
		case format.KindLaunch:
			c.launches = 1
		case format.KindMemcpy:
			if r.Result == 0 {
				c.copied = r.Bytes
			}
		case format.KindSync:
			for from, to := r.StartNs, r.StartNs+max(0, r.DurNs); from < to; from = (from/1e9 + 1) * 1e9 {
				add(from, secondCounts{waitNs: min(to, (from/1e9+1)*1e9) - from})
			}
		}
		add(r.StartNs, c)
		return nil
	}, format.ClassCall, format.ClassMemory))
	tl, err := timeline.Open(rec)
	must(t, err)
	_, err = tl.ReplayMemory(func(_ *livemem.Set, c *livemem.Change) {
		if c.Kind == livemem.ChangeAllocFailed || c.Block.Origin < 0 ||
			livemem.IsHostKind(tl.Origins.MemoryKindOf(c.Block.Origin)) {
			return
		}
		if bytes := livemem.LiveBytesChange(c); bytes > 0 {
			add(c.AtNs, secondCounts{allocated: bytes})
		} else {
			add(c.AtNs, secondCounts{freed: -bytes})
		}
	})
	must(t, err)
	return counts
}

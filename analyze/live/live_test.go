package live_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const second = analyzetest.Second

// feed passes the rows to a Monitor as a recorder does: in the order in which calls return, in batches of
// one class. It calls at after the rows of each second, with the time of the recorder.
func feed(m *live.Monitor, rows []*format.Row, r *rand.Rand, at func(nowNs int64)) {
	rows = slices.Clone(rows)
	end := func(row *format.Row) int64 { return row.StartNs + max(0, row.DurNs) }
	slices.SortStableFunc(rows, func(a, b *format.Row) int { return cmp.Compare(end(a), end(b)) })
	next := int64(analyzetest.Epoch) + second
	for len(rows) > 0 {
		for len(rows) > 0 && end(rows[0]) < next+live.MaxDelayNs {
			class := format.ClassOf(rows[0].Kind)
			var batch []format.Row
			for n := 1 + r.IntN(100); n > 0 && len(rows) > 0 && format.ClassOf(rows[0].Kind) == class; n-- {
				batch, rows = append(batch, *rows[0]), rows[1:]
			}
			m.Add(class, batch)
			clear(batch) // a Monitor keeps no rows
		}
		at(next + live.MaxDelayNs)
		next += second
	}
}

// memoryAt returns the live bytes of a process by kind before a time, from the model of the reports.
func memoryAt(t *testing.T, tl *timeline.Timeline, pid int32, ns int64) map[string]int64 {
	t.Helper()
	bytes := make(map[string]int64)
	_, err := tl.ReplayMemory(func(_ *livemem.Set, c *livemem.Change) {
		if c.AtNs >= ns || c.Kind == livemem.ChangeAllocFailed || c.Block.Origin < 0 {
			return
		}
		if tl.Origins.List[c.Block.Origin].Pid == pid {
			bytes[tl.Origins.MemoryKindOf(c.Block.Origin)] += livemem.LiveBytesChange(c)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	maps.DeleteFunc(bytes, func(_ string, n int64) bool { return n == 0 })
	return bytes
}

// checkSnapshot compares a Snapshot with the rows and with the model of the reports.
func checkSnapshot(t *testing.T, tl *timeline.Timeline, rows []*format.Row, s *live.Snapshot) {
	t.Helper()
	for i := range s.Processes {
		p := &s.Processes[i]
		var calls, launches int64
		for _, row := range rows {
			class := format.ClassOf(row.Kind)
			if row.Pid != p.Pid || class != format.ClassMemory && class != format.ClassCall ||
				row.StartNs < s.FromNs || row.StartNs >= s.ToNs {
				continue
			}
			calls++
			if row.Kind == format.KindLaunch {
				launches++
			}
		}
		if p.Calls != calls || p.Launches != launches {
			t.Errorf("to %d: process %d has %d calls, %d launches; want %d, %d", s.ToNs-analyzetest.Epoch, p.Pid,
				p.Calls, p.Launches, calls, launches)
		}
		got := make(map[string]int64)
		for _, m := range p.Memory {
			got[m.Kind] = m.Bytes
		}
		if want := memoryAt(t, tl, p.Pid, s.ToNs); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("to %d: process %d has %v live, want %v", s.ToNs-analyzetest.Epoch, p.Pid, got, want)
		}
	}
}

func TestSnapshotsEqualTheReports(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(12) {
		r := rand.New(rand.NewPCG(seed, 9))
		recording := analyzetest.NewTestRecording(t)
		analyzetest.AddRandomProgram(recording, r, 3000)
		for _, row := range recording.Rows { // stretch 0.2 s to about 8 s
			row.StartNs = analyzetest.Epoch + 40*(row.StartNs-analyzetest.Epoch)
			row.DurNs *= 40_000 / int64(1+r.IntN(2000))
			row.Context, row.Device = 1, 0
		}
		for range 2000 {
			kind := []string{format.KindLaunch, format.KindAPI}[r.IntN(2)]
			recording.AddCall(kind, "cuLaunchKernel", r.Int64N(8*second), 2000)
		}
		tl, m := recording.Timeline(), live.NewMonitor()
		feed(m, recording.Rows, r, func(now int64) { checkSnapshot(t, tl, recording.Rows, m.Take(now, 1+r.IntN(3))) })
	}
}

// TestLateCallsAreCounted checks that all snapshots and the late calls together have every call.
func TestLateCallsAreCounted(t *testing.T) {
	testclass.Unit(t)
	m := live.NewMonitor()
	call := func(startNs int64) {
		m.Add(format.ClassCall, []format.Row{{
			Kind: format.KindLaunch, Pid: 7, StartNs: analyzetest.Epoch + startNs, DurNs: 1000,
		}})
	}
	check := func(s *live.Snapshot, calls, late, seconds int64) {
		t.Helper()
		if s.Processes[0].Calls != calls || s.Late != late || s.ToNs-s.FromNs != seconds*second {
			t.Errorf("%+v, want %d calls and %d late ones in %d s", s, calls, late, seconds)
		}
	}
	call(second / 5)
	check(m.Take(analyzetest.Epoch+8*second/5, 1), 1, 0, 1)
	if s := m.TakeNext(analyzetest.Epoch+19*second/10, 1); s != nil {
		t.Errorf("no second has ended: %+v", s)
	}
	call(second / 2) // its second was taken
	call(6 * second / 5)
	call(31 * second / 10)
	check(m.TakeNext(analyzetest.Epoch+36*second/10, 1), 1, 1, 2) // it comes late
	check(m.TakeRest(), 1, 1, 1)
}

func TestTrainingWithAllocator(t *testing.T) {
	testclass.Unit(t)
	recording, torch := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{}, analyzetest.Mib)
	tl, m := recording.Timeline(), live.NewMonitor()
	var last *live.Snapshot
	feed(m, recording.Rows, rand.New(rand.NewPCG(3, 3)), func(now int64) {
		last = m.Take(now, 1)
		checkSnapshot(t, tl, recording.Rows, last)
	})
	want := torch.CheckedTotals()
	if len(last.Processes) != 1 || last.Processes[0].Allocator == nil || last.Processes[0].Name != "python3" {
		t.Fatalf("%+v", last)
	}
	if got := *last.Processes[0].Allocator; got != (live.Allocator{want.Allocated, want.Reserved}) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestSamplingMakesEstimates(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	note := func(at int64, recorded bool) {
		recording.AddRow(format.Row{
			Kind: format.KindNote, Name: format.NoteSampling, StartNs: analyzetest.Epoch + at, Device: -1,
			Message: fmt.Sprintf(`{"class":"launch","what":"calls","recorded":%t}`, recorded),
		})
	}
	for i := range int64(750) {
		if at := i * second / 250; at < second || at%second < second/4 {
			recording.AddCall(format.KindLaunch, "cuLaunchKernel", at, 10)
		}
	}
	for i := range int64(2) { // from second 1 on, a quarter of the time
		note((1+i)*second, true)
		note((1+i)*second+second/4, false)
	}
	m, shares := live.NewMonitor(), []float64(nil)
	feed(m, recording.Rows, rand.New(rand.NewPCG(1, 1)), func(now int64) {
		s := m.Take(now, 1)
		shares = append(shares, s.LaunchShare)
		if p := &s.Processes[0]; p.LaunchesPerSec < 245 || p.LaunchesPerSec > 255 {
			t.Errorf("%v launches/s, %d of them recorded", p.LaunchesPerSec, p.Launches)
		}
	})
	if want := []float64{1, 0.25}; !slices.Equal(shares, want) {
		t.Errorf("shares %v, want %v", shares, want)
	}
}

func TestGPUsAndErrors(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddTwoGPUs()
	recording.AddNVMLSample(1, 100*analyzetest.Ms, "gpu_utilization_percent", 40)
	recording.AddNVMLSample(1, 300*analyzetest.Ms, "gpu_utilization_percent", 60)
	recording.AddNVMLSample(1, 300*analyzetest.Ms, "process_used_memory_bytes", 5e9).Pid = 42
	recording.AddAlloc(10*analyzetest.Ms, 5, 0, 1<<40).Result = 2
	recording.AddXid(400*analyzetest.Ms, 1, 42, 31, format.XidFact{})
	m := live.NewMonitor()
	feed(m, recording.Rows, rand.New(rand.NewPCG(1, 1)), func(now int64) {
		s := m.Take(now, 1)
		p, g := &s.Processes[0], &s.GPUs[1]
		if p.Failed != 1 || p.LastError != "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY" {
			t.Errorf("%d failed calls, the last %q", p.Failed, p.LastError)
		}
		if g.UtilizationPercent != 60 || g.Xids != 1 || g.LastXid != 31 || g.Milliwatts != -1 {
			t.Errorf("%+v", g)
		}
	})
}

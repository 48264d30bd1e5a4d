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

// linesAt returns the live bytes on GPUs of a process by call site before a time, from the model of the reports.
func linesAt(t *testing.T, tl *timeline.Timeline, pid int32, ns int64) map[string]int64 {
	t.Helper()
	bytes := make(map[string]int64)
	_, err := tl.ReplayMemory(func(_ *livemem.Set, c *livemem.Change) {
		if c.AtNs >= ns || c.Kind == livemem.ChangeAllocFailed || c.Block.Origin < 0 ||
			livemem.IsHostKind(tl.Origins.MemoryKindOf(c.Block.Origin)) {
			return
		}
		if tl.Origins.List[c.Block.Origin].Pid == pid {
			bytes[tl.Origins.SiteOf(c.Block.Origin)] += livemem.LiveBytesChange(c)
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
		sites, sum := make(map[string]int64), int64(0)
		for _, l := range p.Lines {
			if sum += l.LiveBytes; l.LiveBytes != 0 {
				sites[l.Site] = l.LiveBytes
			}
		}
		if want := linesAt(t, tl, p.Pid, s.ToNs); fmt.Sprint(sites) != fmt.Sprint(want) || sum != p.LiveBytes {
			t.Errorf("to %d: process %d has %v live by line, want %v", s.ToNs-analyzetest.Epoch, p.Pid, sites, want)
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
		liveBytes := make(map[int32]int64) // by pid
		feed(m, recording.Rows, r, func(now int64) {
			s := m.Take(now, 1+r.IntN(3))
			checkSnapshot(t, tl, recording.Rows, s)
			for _, p := range m.Take(now, 1).Processes {
				liveBytes[p.Pid] += p.AllocatedBytes - p.FreedBytes
				if liveBytes[p.Pid] != p.LiveBytes {
					t.Errorf(
						"process %d: %d bytes allocated and not freed, %d live",
						p.Pid,
						liveBytes[p.Pid],
						p.LiveBytes,
					)
				}
			}
		})
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
	tensors := int64(0)
	for _, l := range last.Processes[0].Lines {
		tensors += l.TensorBytes
	}
	if !last.Processes[0].TensorsByLine || tensors != want.Allocated {
		t.Errorf("%d bytes of tensors in lines, want %d", tensors, want.Allocated)
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
	recording.AddNVMLSample(1, 300*analyzetest.Ms, "process_sm_utilization_percent", 70).Pid = 42
	recording.AddAlloc(10*analyzetest.Ms, 5, 0, 1<<40).Result = 2
	recording.AddXid(400*analyzetest.Ms, 1, 42, 31, format.XidFact{})
	m := live.NewMonitor()
	feed(m, recording.Rows, rand.New(rand.NewPCG(1, 1)), func(now int64) {
		s := m.Take(now, 1)
		p, g := &s.Processes[0], &s.GPUs[1]
		if p.Failed != 1 || p.LastError != "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY" {
			t.Errorf("%d failed calls, the last %q", p.Failed, p.LastError)
		}
		if !slices.Equal(p.GPUs, []int32{1}) || p.UsedBytes != 5e9 || p.SMPercent != 70 {
			t.Errorf("process on GPUs %v, %d bytes used, SM %v%%", p.GPUs, p.UsedBytes, p.SMPercent)
		}
		if g.UtilizationPercent != 60 || g.Xids != 1 || g.LastXid != 31 || g.Milliwatts != -1 {
			t.Errorf("%+v", g)
		}
	})
}

// TestVerdictsAndEnds checks that snapshots have the latest verdicts, and a process until a minute after its end.
func TestVerdictsAndEnds(t *testing.T) {
	testclass.Unit(t)
	m := live.NewMonitor()
	for pid := range int32(2) {
		m.Add(format.ClassCall, []format.Row{{Kind: format.KindLaunch, Pid: pid + 1, StartNs: analyzetest.Epoch}})
	}
	m.Add(format.ClassFact, []format.Row{{
		Kind: format.KindProcess, Pid: 1, Name: "python3",
		Message: fmt.Sprintf(`{"exit_ns":%d}`, analyzetest.Epoch+2*second),
	}})
	m.SetVerdicts([]live.Verdict{{Kind: "leak", Pid: 1}, {Kind: "hang"}})
	for _, c := range []struct {
		at   int64 // s
		want string
	}{{1, "[1: 2 2: 1]"}, {3, "[1 exited: 2 2: 1]"}, {62, "[1 exited: 2 2: 1]"}, {63, "[2: 1]"}} {
		var got []string
		lines := m.Take(analyzetest.Epoch+c.at*second+live.MaxDelayNs, 1).ProcessLines()
		for _, p := range lines {
			exited := ""
			if p.Exited {
				exited = " exited"
			}
			got = append(got, fmt.Sprintf("%d%s: %d", p.Pid, exited, len(p.Verdicts)))
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%d s: %v, want %s", c.at, got, c.want)
		}
	}
}

package caching_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestAllocatorModelEqualsSimtorch replays the events in a ledger of examples/simtorch, and
// compares the model with simtorch's statistics. It does so with all events, and without the first
// third. Another test compares simtorch with PyTorch itself.
func TestAllocatorModelEqualsSimtorch(t *testing.T) {
	testclass.Unit(t)
	for name, conf := range map[string]string{"segments": "", "expandable segments": "expandable_segments:True"} {
		t.Run(name, func(t *testing.T) {
			ledger := runTensors(t, conf)
			recording, points := readSimtorch(t, ledger)
			recording.AddRow(
				format.Row{
					Kind:    format.KindNote,
					Name:    format.NoteAllocator,
					Pid:     points[0].pid,
					Message: `{"conf":"` + conf + `"}`,
				},
			)
			whole := totalsAt(t, recording, points)
			for i, p := range points {
				if whole[i].AllocatorTotals != p.totals || whole[i].Disagreed != 0 || !whole[i].FromStart {
					t.Fatalf("checkpoint %d of device %d:\ngot  %+v\nwant %+v", i, p.device, whole[i], p.totals)
				}
			}
			cut := points[len(points)/3].atNs
			recording.Rows = slices.DeleteFunc(
				recording.Rows,
				func(r *format.Row) bool { return r.Kind == format.KindAllocator && r.StartNs < cut },
			)
			// The totals of a device are unknown before its first event.
			points = slices.DeleteFunc(points[len(points)/3:], func(p simtorchPoint) bool {
				return !slices.ContainsFunc(recording.Rows, func(r *format.Row) bool {
					return r.Kind == format.KindAllocator && r.Device == p.device && r.StartNs < p.atNs
				})
			})
			if len(points) < 5 {
				t.Fatalf("only %d checkpoints after the cut", len(points))
			}
			late := totalsAt(t, recording, points)
			for i, p := range points {
				got, want := late[i].AllocatorTotals, p.totals
				first := slices.IndexFunc(points, func(o simtorchPoint) bool { return o.device == p.device })
				f, w := late[first].AllocatorTotals, points[first].totals
				if got.Allocated != want.Allocated || got.Reserved != want.Reserved ||
					got.Requested-f.Requested != want.Requested-w.Requested ||
					got.Segments-f.Segments != want.Segments-w.Segments ||
					got.Allocations-f.Allocations != want.Allocations-w.Allocations ||
					waitingBytes(got) > waitingBytes(want) ||
					waitingBytes(f) == waitingBytes(w) && waitingBytes(got) != waitingBytes(want) ||
					late[i].Disagreed != 0 {
					t.Fatalf(
						"attached late, checkpoint %d of device %d:\ngot  %+v\nwant %+v",
						i,
						p.device,
						late[i],
						want,
					)
				}
			}
		})
	}
}

// waitingBytes returns the bytes of blocks that are freed, and wait for the work of a stream. A recording that begins
// later does not know those from before.
func waitingBytes(t caching.AllocatorTotals) int64 { return t.Active - t.Allocated }

// simtorchPoint is a checkpoint in simtorch's ledger: its own statistics at that time.
type simtorchPoint struct {
	atNs        int64
	pid, device int32
	totals      caching.AllocatorTotals
}

// TestReportsModelEqualsSimtorch replays the statistics that simtorch reported. Their totals are
// known.
func TestReportsModelEqualsSimtorch(t *testing.T) {
	testclass.Unit(t)
	ledger := runTensors(t, "")
	recording, points := readSimtorch(t, ledger)
	reports := simtorchReports(t, ledger)
	// Before the first report, the totals are unknown.
	points = slices.DeleteFunc(points, func(p simtorchPoint) bool { return lastReport(reports, p) == nil })
	recording.Rows = append(
		slices.DeleteFunc(recording.Rows, func(r *format.Row) bool { return r.Kind == format.KindAllocator }),
		reports...)
	recording.AddRow(
		format.Row{
			Kind:    format.KindNote,
			Name:    format.NoteAllocator,
			Pid:     points[0].pid,
			Message: `{"allocator":"torch"` + analyzetest.TorchConf{Reports: true}.EventSource() + `}`,
		},
	)
	check := func(name string, points []simtorchPoint) []state.AllocatorState {
		states := totalsAt(t, recording, points)
		for i, p := range points {
			got := states[i]
			if got.Allocated != p.totals.Allocated || got.Reserved != lastReport(reports, p).ReservedBytes ||
				got.Disagreed != 0 ||
				got.LostFrees != 0 {
				t.Fatalf("%s, checkpoint %d of device %d:\ngot  %+v\nwant %+v, %d "+
					"reserved", name, i, p.device, got, p.totals, lastReport(reports, p).ReservedBytes)
			}
		}
		return states
	}
	for i, s := range check("whole", points) {
		if !s.FromStart || s.Allocations != points[i].totals.Allocations || s.UnmatchedFrees != 0 {
			t.Fatalf("checkpoint %d: %+v, want %+v", i, s, points[i].totals)
		}
	}
	all := slices.Clone(recording.Rows)
	cut := points[len(points)/3].atNs
	recording.Rows = slices.DeleteFunc(
		recording.Rows,
		func(r *format.Row) bool { return r.Kind == format.KindAllocator && r.StartNs < cut },
	)
	// totals are known from the first report on
	points = slices.DeleteFunc(points, func(p simtorchPoint) bool {
		return !slices.ContainsFunc(
			reports,
			func(r *format.Row) bool { return r.Device == p.device && r.StartNs >= cut && r.StartNs < p.atNs },
		)
	})
	var unmatched int64
	for _, s := range check("attached late", points) {
		if unmatched += s.UnmatchedFrees; s.FromStart {
			t.Fatalf("attached late: %+v", s)
		}
	}
	if unmatched == 0 { // one device may have none: the threads' turns decide
		t.Fatal("attached late: all frees are matched")
	}
	// The threads' turns decide how many events of a device come late, so this loses events of the whole run.
	events := make(map[int32]int) // by device
	recording.Rows = slices.DeleteFunc(all, func(r *format.Row) bool {
		if r.Kind != format.KindAllocator {
			return false
		}
		events[r.Device]++
		return events[r.Device]%50 == 25
	})
	points = points[len(points)-2:]
	// after lost events the model takes the reported totals
	for i, s := range totalsAt(t, recording, points) {
		if want := lastReport(
			recording.Rows,
			points[i],
		).AllocatedBytes; s.Allocated != want || s.Disagreed == 0 ||
			s.LostFrees == 0 {
			t.Errorf("one of 50 lost: %+v, want %d bytes allocated", s, want)
		}
	}
}

// simtorchReports returns the reports in a ledger as rows of a recording.
func simtorchReports(t *testing.T, path string) (rows []*format.Row) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSpace(line), "\t")
		if cells[0] != "usage" {
			continue
		}
		n := make([]int64, len(cells))
		for i := range cells[1:] {
			if n[i+1], err = strconv.ParseInt(cells[i+1], 0, 64); err != nil {
				t.Fatal(err)
			}
		}
		r := &format.Row{
			Kind:           format.KindAllocator,
			Name:           format.AllocatorReportedAlloc,
			MemoryKind:     format.MemoryTorch,
			StartNs:        n[1],
			Pid:            int32(n[3]),
			Tid:            int32(n[4]),
			Ptr:            n[5],
			Bytes:          n[6],
			AllocatedBytes: n[7],
			ReservedBytes:  n[8],
			Device:         int32(n[9]),
		}
		if r.Bytes < 0 {
			r.Name, r.Bytes = format.AllocatorReportedFree, -r.Bytes
		}
		rows = append(rows, r)
	}
	return rows
}

// lastReport returns the last report for a device before a checkpoint, or nil.
func lastReport(rows []*format.Row, p simtorchPoint) (last *format.Row) {
	for _, r := range rows {
		if r.Kind == format.KindAllocator && r.Device == p.device && r.StartNs <= p.atNs &&
			(last == nil || r.StartNs >= last.StartNs) {
			last = r
		}
	}
	return last
}

// runTensors runs simtorch's program of random requests, and returns the path of its ledger.
func runTensors(t *testing.T, conf string) string {
	t.Helper()
	program := analyzetest.RepositoryPath(t, "build", "simtorch", "tensors")
	if _, err := os.Stat(program); err != nil {
		testclass.Missing(t, "no simtorch: make simtorch builds it")
	}
	ledger := filepath.Join(t.TempDir(), "ledger")
	cmd := exec.Command(
		program,
		"--events",
		"15000",
		"--threads",
		"4",
		"--devices",
		"2",
		"--seed",
		"7",
		"--checkpoint",
		"500",
	)
	cmd.Env = append(os.Environ(), "SIMTORCH_LEDGER="+ledger, "PYTORCH_CUDA_ALLOC_CONF="+conf)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return ledger
}

func totalsAt(t *testing.T, recording *analyzetest.TestRecording, points []simtorchPoint) []state.AllocatorState {
	t.Helper()
	var times []int64
	for _, p := range points {
		times = append(times, p.atNs)
	}
	moments, err := state.ReadAllocatorsAt(recording.Timeline(), times)
	if err != nil {
		t.Fatal(err)
	}
	var states []state.AllocatorState
	for i, p := range points {
		states = append(
			states,
			analyzetest.FindAllocatorState(moments[i], &analyzetest.TorchAllocator{Pid: p.pid, Device: p.device}),
		)
	}
	return states
}

// readSimtorch reads the events and checkpoints of a ledger.
func readSimtorch(t *testing.T, path string) (*analyzetest.TestRecording, []simtorchPoint) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	recording := analyzetest.NewTestRecording(t)
	var points []simtorchPoint
	columns := make(map[string][]string)
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		cells := strings.Split(scanner.Text(), "\t")
		if kind, ok := strings.CutPrefix(cells[0], "#"); ok {
			columns[kind] = cells[1:]
			continue
		}
		text := func(name string) string { return cells[1+slices.Index(columns[cells[0]], name)] }
		number := func(name string) int64 {
			n, err := strconv.ParseInt(text(name), 0, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		switch cells[0] {
		case "event":
			r := recording.AddRow(format.Row{
				Kind:       format.KindAllocator,
				Name:       text("action"),
				MemoryKind: format.MemoryTorch,
				StartNs:    number("start_ns"),
				Pid: int32(
					number("pid"),
				),
				Tid:    int32(number("tid")),
				Device: int32(number("device")),
				Ptr:    number("ptr"),
				Bytes:  number("bytes"),
				Stream: number(
					"stream",
				),
				SrcPtr:         number("pool_b") - number("pool_a"),
				AllocatedBytes: number("allocated_bytes"),
				ReservedBytes:  number("reserved_bytes"),
			})
			if r.Name == format.AllocatorOOM {
				r.Value, r.Ptr = float64(r.Ptr), 0
			}
		case "checkpoint":
			points = append(
				points,
				simtorchPoint{
					number("start_ns"),
					int32(number("pid")),
					int32(number("device")),
					caching.AllocatorTotals{
						Allocated: number(
							"allocated_bytes",
						),
						Requested: number("requested_bytes"),
						Reserved:  number("reserved_bytes"),
						Active:    number("active_bytes"),
						InactiveSplit: number(
							"inactive_split_bytes",
						),
						Segments:    number("segments"),
						Allocations: number("allocations"),
					},
				},
			)
		}
	}
	slices.SortStableFunc(points, func(a, b simtorchPoint) int { return int(a.atNs - b.atNs) })
	return recording, points
}

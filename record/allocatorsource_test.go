//go:build linux

package record

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/probe"
)

// report is a call of reportMemoryUsageToProfiler in simtorch's ledger, in the units of a
// recording.
type report struct {
	startNs, endNs                int64
	name                          string
	ptr, bytes                    int64
	device                        int32
	allocatedTotal, reservedTotal int64
}

// readReports returns the reports about CUDA memory in a ledger, by thread and in order, and the
// number of reports about CPU memory.
func readReports(t *testing.T, path string, since int64) (reports map[int32][]report, ofCPU int) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reports = make(map[int32][]report)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f := strings.Split(lines.Text(), "\t")
		if f[0] != "usage" {
			continue
		}
		n := make([]int64, len(f))
		for i := range f[1:] {
			if n[i+1], err = strconv.ParseInt(f[i+1], 0, 64); err != nil {
				t.Fatal(err)
			}
		}
		r := report{
			startNs:        n[1],
			endNs:          n[2],
			name:           format.AllocatorReportedAlloc,
			ptr:            n[5],
			bytes:          n[6],
			allocatedTotal: n[7],
			reservedTotal:  n[8],
			device:         int32(n[9]),
		}
		if r.bytes < 0 {
			r.name, r.bytes = format.AllocatorReportedFree, -r.bytes
		}
		switch {
		case r.startNs < since:
		case r.device < 0:
			ofCPU++
		default:
			reports[int32(n[4])] = append(reports[int32(n[4])], r)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return reports, ofCPU
}

// compareReports checks that a recording has exactly these reports of these threads since a time.
// Older reports may be missing. It returns the number of compared reports, and of older ones.
func compareReports(t *testing.T, path string, reports map[int32][]report, since int64) (n, older int) {
	t.Helper()
	offset, wrong := metaOf(t, path).ClockOffsetNs, 0
	recorded := allocatorRows(t, path)
	for tid, list := range reports {
		rows := recorded[tid]
		begin := since // a report may have begun before since and have its probe after it
		if len(list) > 0 {
			begin = max(begin, list[0].startNs)
		}
		for len(rows) > len(list) && rows[0].StartNs-offset < begin {
			rows, older = rows[1:], older+1
		}
		if len(rows) != len(list) {
			t.Errorf("thread %d: %d reports recorded, %d in the ledger", tid, len(rows), len(list))
			continue
		}
		for i, e := range list {
			r := &rows[i]
			got := report{e.startNs, e.endNs, r.Name, r.Ptr, r.Bytes, r.Device, r.AllocatedBytes, r.ReservedBytes}
			if at := r.StartNs - offset; got != e || at < e.startNs || at > e.endNs ||
				r.MemoryKind != format.MemoryTorch ||
				r.Flags != 0 ||
				(e.name == format.AllocatorReportedFree) != (r.StackStatus == format.StackNone) {
				if wrong++; wrong <= 10 {
					t.Errorf(
						"thread %d report %d: recorded %+v at %d, flags %d, stack %s; happened %+v",
						tid,
						i,
						got,
						at,
						r.Flags,
						r.StackStatus,
						e,
					)
				}
			}
			n++
		}
	}
	return n, older
}

// tensorsRun is a running simtorch program with its ledger.
type tensorsRun struct {
	*simProgram
	ledger string
}

func startTensors(t *testing.T, name string, args ...string) tensorsRun {
	t.Helper()
	ledger := filepath.Join(t.TempDir(), "torch.tsv")
	r := tensorsRun{startSim(t, []string{"SIMTORCH_LEDGER=" + ledger}, name, append(args, "--wait")...), ledger}
	r.expect("ready")
	return r
}

func TestReportsEqualTheLedger(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	events := faultScale(20_000, 100_000)
	for _, test := range []struct {
		name, variant string
		mode          library.AllocatorMode
		stacks        string
		warned        string // part of the one warning; "": none
	}{
		{"another name", "renamed/tensors", library.AllocatorModeAuto, probe.StacksFP, "it has no function record_trace " +
			"that could be probed"},
		{"stripped/auto stacks", "stripped/tensors", library.AllocatorModeAuto, probe.StacksAuto, "it has no function " +
			"record_trace that could be probed"},
		{"light", "tensors", library.AllocatorModeLight, probe.StacksFP, ""},
		{"light/older", "other/tensors", library.AllocatorModeLight, probe.StacksFP, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var warnings []string
			opt := testOptions(t)
			opt.Allocator, opt.Stacks = test.mode, test.stacks
			opt.Warn = func(text string) { warnings = append(warnings, text) }
			p := startTensors(
				t,
				simtorch(t, test.variant),
				"--events",
				fmt.Sprint(events),
				"--threads",
				"4",
				"--streams",
				"3",
				"--devices",
				"2",
				"--seed",
				"5",
				"--rate",
				fmt.Sprint(events),
				"--host",
				"7",
			)
			opt.Pids = []int{p.pid()}
			var since int64
			result := runWhile(t, start(t, opt), func() {
				since = monotonic()
				p.step()
				p.expect("done")
			})
			p.finish()
			reports, ofCPU := readReports(t, p.ledger, since)
			checkAllocatorThreads(t, result.Output, reports)
			n, _ := compareReports(t, result.Output, reports, 0)
			if counts := result.Meta.Calls["allocator"]; counts.Lost != 0 || counts.Seen != counts.Recorded ||
				int64(n) != counts.Recorded ||
				n < events/2 ||
				ofCPU == 0 {
				t.Errorf("%d reports compared, %d of the CPU, counts %+v", n, ofCPU, counts)
			}
			fact := allocatorFact(t, result.Output)
			if fact.Missing != "" || fact.Source != format.SourceReports ||
				!strings.Contains(fact.Limits, "requested sizes") ||
				fact.BuildID == "" {
				t.Errorf("fact %+v", fact)
			}
			if test.warned == "" && len(warnings) != 0 ||
				test.warned != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], test.warned)) {
				t.Errorf("warnings %q", warnings)
			}
			t.Logf("%d reports equal, %d of the CPU; %+v", n, ofCPU, result.Meta.Cost)
		})
	}
}

// TestReportsOfARunningProgram checks that every report between attach and detach is recorded.
func TestReportsOfARunningProgram(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	p := startTensors(
		t,
		simtorch(t, "renamed/tensors"),
		"--events",
		"40000",
		"--threads",
		"2",
		"--seed",
		"8",
		"--rate",
		"15000",
		"--host",
		"5",
	)
	p.step()
	awaitLedger(t, p.ledger, 1000)
	s := start(t, testOptions(t, p.pid()))
	since, until := monotonic(), int64(0)
	result := runWhile(t, s, func() {
		awaitCalls(t, s, seenCalls(t, s)+4000) // others came before since
		until = monotonic()
	})
	p.expect("done")
	p.finish()
	reports, _ := readReports(t, p.ledger, since)
	after, rest := 0, 0
	for tid, list := range reports {
		i := slices.IndexFunc(list, func(r report) bool { return r.startNs > until })
		if i < 0 {
			i = len(list)
		}
		after, rest = after+i, rest+len(list)-i
		// Reports during the detach may or may not be recorded.
		for _, r := range allocatorRows(t, result.Output)[tid] {
			if at := r.StartNs - result.Meta.ClockOffsetNs; at > until && i < len(list) && at >= list[i].startNs {
				i++
			}
		}
		reports[tid] = list[:i]
	}
	checkAllocatorThreads(t, result.Output, reports)
	n, older := compareReports(t, result.Output, reports, since)
	if n < 1000 || n < after || rest == 0 {
		t.Errorf("%d reports compared; the ledger has %d during the recording, %d later", n, after, rest)
	}
	t.Logf("%d reports equal, %d of before attaching was over, %d after", n, older, rest)
}

// TestAllocatorWithoutSourceIsReported records a program whose allocator functions cannot be
// probed: a warning reports the missing allocator, and CUDA calls are recorded.
func TestAllocatorWithoutSourceIsReported(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for mode, why := range map[library.AllocatorMode]string{
		library.AllocatorModeAuto: "it has no function record_trace that could be probed: its symbols are stripped, or " +
			"PyTorch is older than 2.2; libc10.so has no c10::reportMemoryUsageToProfiler",
		library.AllocatorModeLight: "libc10_cuda.so: libc10.so has no c10::reportMemoryUsageToProfiler",
	} {
		var warnings []string
		opt := testOptions(t)
		opt.Allocator = mode
		opt.Warn = func(text string) { warnings = append(warnings, text) }
		result, _ := recordTensors(t, opt, nil, "silent/tensors", "--events", "5000", "--seed", "6", "--rate", "10000")
		if rows := allocatorRows(t, result.Output); len(rows) != 0 {
			t.Errorf("events of %d threads", len(rows))
		}
		fact := allocatorFact(t, result.Output)
		if len(warnings) != 1 || fact.Missing != warnings[0] || fact.Source != "" ||
			!strings.Contains(fact.Missing, why) {
			t.Errorf("%s: warnings %q, fact %+v", mode, warnings, fact)
		}
		if result.Meta.Calls["memory"].Recorded == 0 {
			t.Errorf("no CUDA memory calls: %+v", result.Meta.Calls)
		}
	}
}

// TestNoAllocatorIsRecordedTwice records two processes with the same libc10.so. One of them has
// record_trace. Its reports must not be recorded, although they are probed for the other process.
func TestNoAllocatorIsRecordedTwice(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	plain, renamed := t.TempDir(), t.TempDir()
	copyFile(t, simtorch(t, "libc10.so"), filepath.Join(plain, "libc10.so"))
	if err := os.Link(filepath.Join(plain, "libc10.so"), filepath.Join(renamed, "libc10.so")); err != nil {
		t.Fatal(err)
	}
	for dir, variant := range map[string]string{plain: ".", renamed: "renamed"} {
		for _, name := range []string{"libc10_cuda.so", "tensors"} {
			copyFile(t, simtorch(t, filepath.Join(variant, name)), filepath.Join(dir, name))
		}
	}
	run := []string{"--events", "10000", "--threads", "2", "--rate", "20000", "--host", "9", "--seed"}
	traced := startTensors(t, filepath.Join(plain, "tensors"), append(run, "1")...)
	reported := startTensors(t, filepath.Join(renamed, "tensors"), append(run, "2")...)
	var since int64
	result := runWhile(t, start(t, testOptions(t, traced.pid(), reported.pid())), func() {
		since = monotonic()
		traced.step()
		reported.step()
		traced.expect("done")
		reported.expect("done")
	})
	traced.finish()
	reported.finish()
	events := readAllocatorLedger(t, traced.ledger, since)
	reports, _ := readReports(t, reported.ledger, since)
	rows, happened := 0, 0
	for tid, list := range allocatorRows(t, result.Output) {
		rows += len(list)
		happened += len(events[tid]) + len(reports[tid])
		isReport := strings.HasPrefix(list[0].Name, "reported_")
		if len(list) != len(events[tid])+len(reports[tid]) || isReport != (reports[tid] != nil) ||
			slices.ContainsFunc(
				list,
				func(r format.Row) bool { return strings.HasPrefix(r.Name, "reported_") != isReport },
			) {
			t.Errorf(
				"thread %d: %d rows, %d events and %d reports happened",
				tid,
				len(list),
				len(events[tid]),
				len(reports[tid]),
			)
		}
	}
	if counts := result.Meta.Calls["allocator"]; counts.Lost != 0 || counts.Seen != int64(rows) || rows < 15_000 ||
		rows != happened {
		t.Errorf("%d rows, %d events in the ledger, counts %+v", rows, happened, counts)
	}
}

// TestReportsOfChildren records children that load the libraries themselves, and a child that calls
// exec, from their first event on.
func TestReportsOfChildren(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir := t.TempDir()
	for _, variant := range []string{"renamed", "."} {
		if err := os.Mkdir(filepath.Join(dir, "lib-"+variant), 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"libc10.so", "libc10_cuda.so", "tensors"} {
			copyFile(t, simtorch(t, filepath.Join(variant, name)), filepath.Join(dir, "lib-"+variant, name))
		}
	}
	run := `--events 3000 --threads 1 --rate 6000 --seed 3 >/dev/null`
	command := startShell(t, dir, fmt.Sprintf(`
		export SIMTORCH_LEDGER_SYNC=1 SIMTORCH_LEDGER=%[1]s/reports
		%[1]s/lib-renamed/tensors %[2]s
		SIMTORCH_LEDGER=%[1]s/events %[1]s/lib-./tensors %[2]s
		%[1]s/lib-renamed/tensors %[2]s
		sh -c 'export SIMTORCH_LEDGER=%[1]s/events; exec %[1]s/lib-./tensors %[2]s'`, dir, run))
	result := recordCommand(t, command, testOptions(t))
	reports, _ := readReports(t, filepath.Join(dir, "reports"), 0)
	events := readAllocatorLedger(t, filepath.Join(dir, "events"), 0)
	nReports, _ := compareReports(t, result.Output, reports, 0)
	nEvents := compareAllocatorThreads(t, result.Output, events, true).events
	counts := result.Meta.Calls["allocator"]
	if nReports < 2000 || nEvents < 4000 || counts.Recorded != int64(nReports+nEvents) || counts.Lost != 0 {
		t.Errorf("%d reports and %d events compared, counts %+v", nReports, nEvents, counts)
	}
	sources := make(map[string]int)
	for _, fact := range allocatorFacts(t, result.Output) {
		sources[fact.Source]++
	}
	// A process may get a note before and after its exec.
	if sources[format.SourceReports] < 2 || sources[format.SourceTrace] < 2 {
		t.Errorf("facts %v", sources)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

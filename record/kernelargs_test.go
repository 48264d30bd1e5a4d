//go:build linux

package record

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/rowwriter"
)

// launchArguments are the arguments of a launch in simcuda's ledger.
type launchArguments struct {
	pid, tid int32
	startNs  int64 // CLOCK_MONOTONIC
	name     string
	function int64
	stream   int64
	offsets  []int64
	values   []string // hexadecimal
}

// argumentKey identifies a launch.
type argumentKey struct {
	pid, tid int32
	startNs  int64
}

// readArgumentLedger returns the launches of a ledger of arguments.
func readArgumentLedger(t *testing.T, path string) (list []launchArguments) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	number := func(s string) int64 {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return int64(n)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 8 {
			t.Fatalf("line of %d columns: %s", len(f), line)
		}
		l := launchArguments{
			pid: int32(number(f[0])), tid: int32(number(f[1])), startNs: number(f[2]), name: f[3],
			function: number(f[4]), stream: number(f[6]),
		}
		for value := range strings.SplitSeq(f[7], ",") {
			if offset, hex, ok := strings.Cut(value, ":"); ok {
				l.offsets, l.values = append(l.offsets, number(offset)), append(l.values, hex)
			}
		}
		list = append(list, l)
	}
	return list
}

// recordedArguments returns the rows of kind kernel_args.
func recordedArguments(t *testing.T, path string) (rows []format.Row) {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if err := rec.Rows(func(r *format.Row) error {
		rows = append(rows, *r)
		return nil
	}, format.ClassArguments); err != nil {
		t.Fatal(err)
	}
	return rows
}

// argumentTotals counts what compareArguments compared.
type argumentTotals struct {
	launches  map[string]int // by layout
	values    int
	cut       int // values that were read in part
	missing   int // values that were not read, as the row says
	notInRows int // launches of the ledger without a row
}

// compareArguments compares each row with the ledger, byte by byte.
func compareArguments(t *testing.T, path, ledger string) argumentTotals {
	t.Helper()
	offsetNs := metaOf(t, path).ClockOffsetNs
	rows := make(map[argumentKey]*format.Row)
	all := recordedArguments(t, path)
	for i := range all {
		rows[argumentKey{all[i].Pid, all[i].Tid, all[i].StartNs - offsetNs}] = &all[i]
	}
	totals := argumentTotals{launches: make(map[string]int)}
	// The ledger reads its clock after the probe: the row of a launch is the last one before.
	starts := make(map[int32][]int64)
	for key := range rows {
		starts[key.tid] = append(starts[key.tid], key.startNs)
	}
	for _, list := range starts {
		slices.Sort(list)
	}
	for _, l := range readArgumentLedger(t, ledger) {
		list := starts[l.tid]
		i, _ := slices.BinarySearch(list, l.startNs+1)
		if i == 0 {
			totals.notInRows++
			continue
		}
		row := rows[argumentKey{l.pid, l.tid, list[i-1]}]
		if row == nil || row.Name != l.name || row.Function != l.function || row.Stream != l.stream {
			totals.notInRows++
			continue
		}
		if text := totals.compare(t, row, &l); text != "" {
			t.Errorf(
				"%s of function %#x: %s\n%s\nledger %v %v",
				row.Name,
				row.Function,
				text,
				row.Message,
				l.offsets,
				l.values,
			)
		}
	}
	return totals
}

// compare compares a row with a launch of the ledger, and returns the difference.
func (a *argumentTotals) compare(t *testing.T, row *format.Row, l *launchArguments) string {
	t.Helper()
	args, err := format.ParseKernelArgs(row.Message)
	if err != nil {
		return err.Error()
	}
	a.launches[args.Layout]++
	if args.Layout != format.ArgumentsUnknown && len(args.Values) != len(l.values) {
		if args.Missing == "" || len(args.Values) > len(l.values) {
			return fmt.Sprintf("%d values", len(args.Values))
		}
		a.missing += len(l.values) - len(args.Values)
	}
	isBuffer := args.Layout == format.ArgumentsUnknown && len(args.Values) > 0 && args.Values[0].Offset != nil
	if isBuffer { // words of the buffer, with holes for alignment: compare those that begin a parameter
		return ""
	}
	for i := range args.Values[:min(len(args.Values), len(l.values))] {
		v, want := &args.Values[i], l.values[i]
		switch {
		case args.Layout == format.ArgumentsUnknown:
			size := min(len(want), len(v.Hex)) // a word may be longer or shorter than the value
			if size == 0 || v.Hex[:size] != want[:size] {
				return fmt.Sprintf("word %d differs", i)
			}
		case v.Offset == nil || *v.Offset != l.offsets[i]:
			return fmt.Sprintf("value %d has another offset", i)
		case v.IsCut:
			a.cut++
			if !strings.HasPrefix(want, v.Hex) || v.Hex == want || args.Missing == "" {
				return fmt.Sprintf("value %d is cut, and differs", i)
			}
		case v.Hex != want:
			return fmt.Sprintf("value %d differs", i)
		}
		a.values++
	}
	return ""
}

// TestKernelArgsOfEvery compares the arguments of every kind of launch with simcuda's ledger.
func TestKernelArgsOfEvery(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	ledger := filepath.Join(t.TempDir(), "arguments.tsv")
	p := startSim(t, []string{"SIMCUDA_ARGUMENTS=" + ledger}, "every", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.KernelArgs = rowwriter.AllLaunches
	result := runWhile(t, start(t, opt), func() {
		p.step()
		p.expect("done")
	})
	p.finish()
	n := compareArguments(t, result.Output, ledger)
	counts := result.Meta.KernelArgs
	if n.launches[format.ArgumentsFromModule]+n.launches[format.ArgumentsFromCalls] < 10 || n.notInRows > 0 ||
		counts == nil ||
		counts.Lost != 0 ||
		counts.Read != counts.Recorded {
		t.Errorf("%+v, counts %+v", n, counts)
	}
	t.Logf("%+v", n)
}

// TestKernelArgsOfRandomSignatures compares the arguments of kernels with random parameters with simcuda's ledger.
func TestKernelArgsOfRandomSignatures(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	ledger := filepath.Join(t.TempDir(), "arguments.tsv")
	p := startSim(
		t,
		[]string{"SIMCUDA_ARGUMENTS=" + ledger},
		"signatures",
		"--seed",
		"3",
		"--launches",
		"2000",
		"--wait",
	)
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.KernelArgs = rowwriter.AllLaunches
	result := runWhile(t, start(t, opt), func() {
		p.step()
		p.expect("finished")
	})
	p.finish()
	n := compareArguments(t, result.Output, ledger)
	for _, layout := range []string{format.ArgumentsFromModule, format.ArgumentsFromCalls, format.ArgumentsUnknown} {
		if n.launches[layout] < 400 {
			t.Errorf("%d launches with the layout %s", n.launches[layout], layout)
		}
	}
	if counts := result.Meta.KernelArgs; n.notInRows > 0 || counts.Lost != 0 || counts.Read != counts.Recorded {
		t.Errorf("%+v, counts %+v", n, counts)
	}
	t.Logf("%+v", n)
}

// TestKernelArgsCostNothingUnasked records without arguments: there are no rows and counts of them, and functions that
// are probed for them have no probes.
func TestKernelArgsCostNothingUnasked(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	p := startSim(t, nil, "every", "--wait")
	p.expect("ready")
	result := runWhile(t, start(t, testOptions(t, p.pid())), func() {
		p.step()
		p.expect("done")
	})
	p.finish()
	if rows := recordedArguments(t, result.Output); len(rows) > 0 || result.Meta.KernelArgs != nil {
		t.Errorf("%d rows, counts %+v", len(rows), result.Meta.KernelArgs)
	}
	for _, rows := range recordedCalls(t, result.Output) {
		for i := range rows {
			if strings.HasSuffix(rows[i].Name, "GetParamInfo") {
				t.Errorf("%s was recorded", rows[i].Name)
			}
		}
	}
}

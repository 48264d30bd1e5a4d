package leaks_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// siteRows returns the rows of the site featureSite, as "CALLER ALLOCS FREES VERDICT".
func siteRows(t *testing.T, recording *analyzetest.TestRecording) (rows []string) {
	t.Helper()
	r, err := leaks.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	table := &r.Tables[0]
	for i := range table.Rows {
		cell := func(key string) any { return table.Cell(&table.Rows[i], key) }
		caller, ok := strings.CutPrefix(cell("site").(string), featureSite+" from ")
		if !ok {
			caller = "whole"
		}
		rows = append(rows, fmt.Sprint(caller, " ", cell("allocs"), " ", cell("frees"), " ", cell("verdict")))
	}
	return rows
}

// TestRandomCallTreesAreNotMixed runs programs in which validate keeps blocks and train_step frees them. Both reach
// the site through random helpers, and each line of a helper belongs to one or to both. All rows must add up to
// the site, and no row may have memory of both.
func TestRandomCallTreesAreNotMixed(t *testing.T) {
	testclass.Unit(t)
	split := 0
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(1, seed))
		var ways []wayCalls
		allocs, frees := int64(0), int64(0)
		for i := range 2 + r.IntN(8) {
			w := wayCalls{blocks: 20 + r.Int64N(80)}
			for range r.IntN(4) {
				w.callers = append(w.callers, fmt.Sprintf("data.py:%d helper", 1+r.IntN(3)))
			}
			if i == 0 || i > 1 && r.IntN(2) == 0 {
				w.callers = append(w.callers, fromValidate...)
			} else {
				w.callers, w.freed = append(w.callers, fromTrain...), 100
			}
			ways = append(ways, w)
			allocs, frees = allocs+w.blocks, frees+w.blocks*w.freed/100
		}
		rows := siteRows(t, waysRecording(t, ways...))
		if len(rows) > 1 {
			split++
		}
		for _, row := range rows {
			var a, f int64
			at := strings.Fields(row[strings.LastIndex(row, ")")+1:])
			if len(rows) == 1 {
				at = strings.Fields(row)[1:]
			}
			if _, err := fmt.Sscan(at[0]+" "+at[1], &a, &f); err != nil {
				t.Fatal(err)
			}
			allocs, frees = allocs-a, frees-f
			if len(rows) > 1 && f != 0 && f != a {
				t.Errorf("seed %d: %s has kept and freed memory", seed, row)
			}
		}
		if allocs != 0 || frees != 0 {
			t.Errorf("seed %d: %s: %d allocations and %d frees are missing", seed, rows, allocs, frees)
		}
	}
	if split < 20 {
		t.Errorf("only %d of 25 sites are split", split)
	}
}

// TestWaysOfSeveralProcesses runs two ranks with stacks of their own. One ends early, so that the driver frees what
// its validate kept.
func TestWaysOfSeveralProcesses(t *testing.T) {
	testclass.Unit(t)
	recording := waysRecording(t, wayCalls{fromValidate, 100, 0}, wayCalls{fromTrain, 600, 100},
		wayCalls{fromValidate, 100, 0}, wayCalls{fromTrain, 600, 100})
	second := make(map[int64]bool) // addresses of the second process
	recording.Rows = slices.DeleteFunc(recording.Rows, func(r *format.Row) bool {
		if r.StackID > 2 || r.Kind == format.KindFree && second[r.Ptr] {
			r.Pid, r.Tid = 43, 43
			second[r.Ptr] = true
		}
		return r.Pid == 43 && r.StartNs > analyzetest.Epoch+40*analyzetest.Second
	})
	for _, pid := range []int32{42, 43} {
		recording.AddRow(format.Row{Kind: format.KindProcess, Pid: pid, StartNs: analyzetest.Epoch})
	}
	recording.AddExit(43, 41*analyzetest.Second)
	want := "validate (train.py:40) 168 0 growing; train_step (train.py:22) 1004 1003 churn"
	if got := strings.Join(siteRows(t, recording), "; "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestWaysOfInlinedCallers has callers that the compiler put into main: their frames share an address.
func TestWaysOfInlinedCallers(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	frame := func(function string, line int32, addr int64) format.Frame {
		return format.Frame{
			Func: function, File: "/src/train.cc", Line: line, Module: "/app/train", Addr: addr, Type: "native",
		}
	}
	for i, caller := range []string{"validate", "train_step"} {
		addr := int64(0x3000 + i)
		recording.AddStackRow(int32(i+1), format.StackComplete, "", featureSite, []format.Frame{
			{Func: "cuMemAlloc_v2", Module: "/usr/lib/libcuda.so.1", Type: "native"},
			{Func: "cudaMalloc", Module: "/usr/lib/libcudart.so.12", Type: "native"},
			frame("make_features", 10, 0x2000), frame("thrust::detail::apply<int>", 7, addr),
			frame(caller, 20, addr), frame("main", 60, addr),
			{Func: "__libc_start_main_impl", Module: "/usr/lib/libc.so.6", Type: "native"},
		})
	}
	for i := range int64(500) {
		at, ptr := analyzetest.Second+i*110*analyzetest.Ms, 0x7f0000000000+i*2*analyzetest.Mib
		alloc := recording.AddAlloc(at, analyzetest.Us, ptr, analyzetest.Mib)
		if analyzetest.SetStackAndSite(alloc, 2, featureSite); i%5 == 0 {
			alloc.StackID = 1
			continue
		}
		recording.AddFree(at+analyzetest.Ms, analyzetest.Us, ptr)
	}
	want := "validate (train.cc:20) 100 0 growing; train_step (train.cc:20) 400 400 churn"
	if got := strings.Join(siteRows(t, recording), "; "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestTooManyStacksLeaveTheSiteWhole has a site with more stacks than are counted.
func TestTooManyStacksLeaveTheSiteWhole(t *testing.T) {
	testclass.Unit(t)
	for stacks, want := range map[int]int{4096: 2, 4097: 1} {
		var ways []wayCalls
		for i := range stacks {
			w := wayCalls{callers: []string{fmt.Sprintf("data.py:%d helper", i)}, blocks: 1, freed: int64(i % 2 * 100)}
			w.callers = append(w.callers, [][]string{fromValidate, fromTrain}[i%2]...)
			ways = append(ways, w)
		}
		if rows := siteRows(t, waysRecording(t, ways...)); len(rows) != want {
			t.Errorf("%d stacks: %s, want %d rows", stacks, rows, want)
		}
	}
}

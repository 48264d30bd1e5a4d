//go:build linux

package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/unwind/tablecache"
)

// readIntervals reads the rules of a file without the packed form.
func readIntervals(t *testing.T, path string) *sdtypes.IntervalData {
	t.Helper()
	reference := pfelf.NewReferenceWithOpenFunc(
		path,
		noOtherFiles{},
		func() (*pfelf.File, error) { return pfelf.Open(path) },
	)
	defer reference.Close()
	intervals, err := elfunwindinfo.ExtractELF(reference)
	if err != nil {
		t.Fatal(err)
	}
	return intervals
}

// TestRulesEqualIntervals compares the rules of all code of libc and other libraries in the packed form, read from the file and from a store, with those that the module extracts.
func TestRulesEqualIntervals(t *testing.T) {
	testclass.Unit(t)
	cache, err := tablecache.Open(filepath.Join(t.TempDir(), "tables"), 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	compared := 0
	for _, path := range mappedLibraries(t) {
		intervals := readIntervals(t, path)
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for _, from := range []string{"the file", "the store"} { // the first read stores the table
			table, err := ReadTable(file, cache)
			if err != nil {
				t.Fatal(err)
			}
			compared += compareRules(t, fmt.Sprintf("%s, from %s", path, from), table, intervals)
		}
	}
	_, isPatched := elfunwindinfo.NewStackDeltaProvider().(tableReader)
	if stats := cache.Stats(); isPatched && (stats.Hits == 0 || stats.Rejected != 0) {
		t.Errorf("%+v: no table was read from the store", stats)
	}
	if compared == 0 {
		t.Error("no rule was compared")
	}
}

// compareRules compares the rules at all addresses, and returns the number of addresses.
func compareRules(t *testing.T, name string, table *Table, intervals *sdtypes.IntervalData) (n int) {
	t.Helper()
	want := (*intervalRules)(intervals)
	for _, block := range intervals.Blocks {
		for vaddr := block.Start; vaddr < block.End; vaddr++ {
			n++
			have, _ := table.rule(vaddr)
			rule, _ := want.find(vaddr)
			next, _ := want.find(vaddr + 1)
			if rule.Flags == support.UnwindFlagCommand && rule.Param == support.UnwindCommandInvalid {
				rule = sdtypes.UnwindInfo{} // no rule, too
			}
			isSignal := next == sdtypes.UnwindInfoSignal && have == next // the packed form begins one byte earlier
			if have != rule && !isSignal {
				t.Fatalf("%s: at %#x the rule is %+v, want %+v", name, vaddr, have, rule)
			}
		}
	}
	return n
}

// mappedLibraries returns the paths of libc and other libraries of the machine.
func mappedLibraries(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1"} {
		for _, folder := range []string{"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib64", "/usr/lib64"} {
			if found, _ := filepath.Glob(filepath.Join(folder, pattern)); len(found) > 0 {
				paths = append(paths, found[0])
				break
			}
		}
	}
	if len(paths) == 0 {
		testclass.Missing(t, "no libc")
	}
	return paths
}

// TestTablesAreReleased checks that a store's memory is released when a table is no longer used.
func TestTablesAreReleased(t *testing.T) {
	testclass.Unit(t)
	released := make(chan struct{})
	rules, err := newPackedRules(
		1<<16,
		[]uint16{1},
		[]uint32{support.DeltaCommandFlag << 16},
		nil,
		func() { close(released) },
	)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := rules.find(1 << 16); ok {
		t.Error("a command without a rule is one")
	}
	rules = nil
	for end := time.Now().Add(10 * time.Second); ; runtime.GC() {
		select {
		case <-released:
			return
		case <-time.After(time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatal("the memory was not released")
		}
	}
}

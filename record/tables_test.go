//go:build linux

package record

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/unwind/tablecache"
)

// TestSecondAttachReadsNoTables records the same programs three times: with a new folder of tables,
// with the folder of the first recording, and after one of its tables was damaged. The stacks must be
// complete each time. Only the first recording may extract tables from files.
func TestSecondAttachReadsNoTables(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir, own := buildChains(t)
	folder := filepath.Join(t.TempDir(), "tables")
	newPrograms := func() []*chainProgram {
		programs := []*chainProgram{{
			name: "chain", args: []string{filepath.Join(dir, "chain"), "EXPECTED", filepath.Join(dir, "late.so")},
		}}
		// Part of the newest interpreter's loop is found in its .eh_frame.
		found := pythons(t)
		newest := slices.Max(slices.Collect(maps.Keys(found)))
		return append(programs, &chainProgram{
			name: newest,
			args: []string{found[newest], script(t, "chain.py"), filepath.Join(dir, "chains.so"), "EXPECTED"},
		})
	}
	record := func(name string) (stats tablecache.Stats) {
		t.Run(name, func(t *testing.T) {
			programs := newPrograms()
			result := recordProgramsWith(t, func(opt *Options) {
				opt.Stacks, opt.TableFolder = probe.StacksFull, folder
			}, programs, func(s *Session) { stats = s.tables.Stats() })
			for _, p := range programs {
				t.Run(p.name, func(t *testing.T) { own.compareChains(t, result.Output, p).report(t) })
			}
		})
		return stats
	}
	first := record("first")
	if first.Misses == 0 || first.Stored != first.Misses || first.Hits != 0 {
		t.Errorf("the first recording: %+v", first)
	}
	if second := record("second"); second != (tablecache.Stats{Hits: first.Misses}) {
		t.Errorf("the second recording: %+v, after %+v", second, first)
	}
	damaged := largestFile(t, folder)
	if err := os.Truncate(damaged, 1000); err != nil {
		t.Fatal(err)
	}
	third := record("damaged")
	if want := (tablecache.Stats{Hits: first.Misses - 1, Misses: 1, Rejected: 1, Stored: 1}); third != want {
		t.Errorf("with a damaged table: %+v, want %+v", third, want)
	}
}

// largestFile returns the path of the largest file in a folder.
func largestFile(t *testing.T, folder string) (path string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Size() > bytes {
			path, bytes = filepath.Join(folder, e.Name()), info.Size()
		}
	}
	return path
}

// TestUnsafeTableFolderIsReported records with a folder that others can write to.
func TestUnsafeTableFolderIsReported(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "100", "--wait")
	p.expect("ready")
	folder := t.TempDir()
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	var warnings []string
	opt := testOptions(t, p.pid())
	opt.Stacks, opt.TableFolder = probe.StacksFull, folder
	opt.Warn = func(text string) { warnings = append(warnings, text) }
	s := start(t, opt)
	runWhile(t, s, func() {
		p.step()
		p.expect("done")
	})
	p.finish()
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 0 {
		t.Errorf("files in the folder: %v, %v", entries, err)
	}
	want := "unwind tables are not kept for the next recording: " + folder +
		": the folder must belong to the user of the recorder, and no other user may write to it"
	if !slices.Equal(warnings, []string{want}) {
		t.Errorf("warnings %q", warnings)
	}
}

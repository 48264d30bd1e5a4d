//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestFirstFindingsOfPrograms records programs on simtorch that have one problem each, and checks the first row of the
// summary: the rule, what it says, and the line with the comment "the cause" or "the leak". If several callers share the
// line, the row must name the one that keeps the memory.
func TestFirstFindingsOfPrograms(t *testing.T) {
	testclass.Root(t)
	requireSimcuda(t, "storm", privilege.AttachAuto)
	for _, c := range []struct{ script, rule, what, marker, caller string }{
		{"longer_inputs.py", "cache-growth", "become longer", "the cause", ""},
		{"fresh_streams.py", "cache-growth", "streams", "the cause", ""},
		{"empty_cache.py", "alloc-in-loop", "segments of PyTorch's allocator are freed and allocated again", "the cause", ""},
		{"leak_list.py", "growing-site", "memory grows by", "the leak", ""},
		{"leak_caller.py", "growing-site", "memory grows by", "the leak", "validate"},
		{"no_leak.py", "", "", "", ""},
	} {
		t.Run(c.script, func(t *testing.T) {
			script, err := filepath.Abs("../../examples/simtorch/" + c.script)
			must(t, err)
			t.Setenv("LD_LIBRARY_PATH", simcudaDir())
			t.Setenv("SIMCUDA_STATE", filepath.Join(t.TempDir(), "state"))
			output := filepath.Join(t.TempDir(), "run.parquet")
			_, messages, code := runGpurec(
				t,
				"record",
				"--max-overhead=off",
				"--nvml-interval",
				"0",
				"-o",
				output,
				"--",
				"python3",
				"-B",
				script,
				"--steps",
				"800",
				"--step-ms",
				"10",
			)
			if code != 0 {
				t.Fatalf("record: exit %d\n%s", code, messages)
			}
			stdout, messages, code := runGpurec(t, "analyze", "summary", "--format", "json", output)
			if code != 0 {
				t.Fatalf("analyze: exit %d\n%s", code, messages)
			}
			var out struct {
				Hits []struct{ Rule, What, Where string }
			}
			must(t, json.Unmarshal([]byte(stdout), &out))
			if c.rule == "" {
				for _, h := range out.Hits {
					if h.Rule == "growing-site" || h.Rule == "cache-growth" || h.Rule == "alloc-in-loop" {
						t.Errorf("%+v", h)
					}
				}
				return
			}
			if len(out.Hits) == 0 {
				t.Fatal("no finding")
			}
			first, line := out.Hits[0], ":"+strconv.Itoa(lineWith(t, script, "# "+c.marker))
			if first.Rule != c.rule || !strings.Contains(first.What, c.what) ||
				!strings.Contains(first.Where, line+")") {
				t.Errorf("%+v, want %s at line %s", out.Hits, c.rule, line)
			}
			if c.caller != "" && !strings.Contains(first.Where, " from "+c.caller+" (") {
				t.Errorf("%q does not name the caller %s", first.Where, c.caller)
			}
		})
	}
}

// lineWith returns the number of the line of a file that ends with a text.
func lineWith(t *testing.T, path, text string) int {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	for i, line := range strings.Split(string(data), "\n") {
		if strings.HasSuffix(strings.TrimSpace(line), text) {
			return i + 1
		}
	}
	t.Fatalf("%s has no line with %q", path, text)
	return 0
}

package analyze_test

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/digest"
	"github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestPassesOfEachCommand compares the number of passes of each command with testdata/passes.txt. A
// pass over a large recording costs seconds. A higher number needs a reason.
func TestPassesOfEachCommand(t *testing.T) {
	testclass.Unit(t)
	path := filepath.Join(t.TempDir(), "training.parquet")
	writeTraining(t, path, 20_000, "-words")
	var got bytes.Buffer
	classes := []format.Class{
		format.ClassCall,
		format.ClassMemory,
		format.ClassAllocator,
		format.ClassProgress,
		format.ClassHost,
	}
	fmt.Fprintf(&got, "%-10s", "command")
	for _, c := range classes {
		fmt.Fprintf(&got, " %9s", c)
	}
	got.WriteByte('\n')
	type command struct {
		name string
		run  func(*timeline.Timeline) error
	}
	var commands []command
	for _, r := range analyze.Reports {
		commands = append(commands, command{r.Name, func(tl *timeline.Timeline) error {
			_, err := r.Run(tl, query.Options{})
			return err
		}})
	}
	for _, c := range append(commands, []command{
		{"page", func(tl *timeline.Timeline) error {
			_, err := html.WritePage(tl, io.Discard, html.Options{})
			return err
		}},
		{"digest", func(tl *timeline.Timeline) error {
			_, err := digest.Collect(tl, digest.Options{})
			return err
		}},
		{"perfetto", func(tl *timeline.Timeline) error {
			_, err := perfetto.WriteTrace(tl, io.Discard, perfetto.Options{})
			return err
		}},
		{"pprof", func(tl *timeline.Timeline) error {
			_, _, _, err := pprof.BuildProfile(tl, pprof.Options{Type: "launches"})
			return err
		}},
	}...) {
		passes := passesOf(t, path, c.run)
		fmt.Fprintf(&got, "%-10s", c.name)
		for _, class := range classes {
			fmt.Fprintf(&got, " %9d", passes[class])
		}
		got.WriteByte('\n')
	}
	analyzetest.CompareGolden(t, "passes.txt", got.Bytes())
}

// passesOf returns how often a command reads the row groups of each class, with timeline.Open.
func passesOf(t *testing.T, path string, run func(*timeline.Timeline) error) map[format.Class]int {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(tl); err != nil {
		t.Fatal(err)
	}
	return rec.Passes()
}

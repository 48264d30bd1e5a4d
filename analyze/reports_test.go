package analyze_test

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/internal/testclass"
)

// recordings are the recordings of several tests. Together they fill every table of every report.
var recordings = map[string]func(testing.TB) *analyzetest.TestRecording{
	"training": analyzetest.TrainingRecording,
	"crashing": analyzetest.CrashingRecording,
	"trainer":  analyzetest.SmallAllocatorRecording,
	"frag":     analyzetest.FragmentingRecording,
	"machine":  analyzetest.TwoGPURecording,
	"oom":      analyzetest.OOMRecording,
	"workload": analyzetest.WorkloadRecording,
	"pytorch":  analyzetest.PytorchStacksRecording,
	"troubled": rulecases.TroubledRecording,
	"ranks":    analyzetest.FourRanksRecording,
	"sampled":  sampledTape,
	"working":  callsTape,
	"host":     analyzetest.HostRecording,
	"blocks":   analyzetest.BlocksRecording,
}

func TestEveryReportIsExplained(t *testing.T) {
	testclass.Unit(t)
	for name, tape := range recordings {
		tl := tape(t).Timeline()
		for _, of := range analyze.Reports {
			r, err := of.Run(tl, query.Options{})
			if err != nil {
				t.Fatalf("%s of %s: %v", of.Name, name, err)
			}
			if r.Command != of.Name {
				t.Errorf("report %s has the command %s", of.Name, r.Command)
			}
			checkExplained(t, of, r)
		}
	}
}

// selfExplanatory are columns that need no explanation: the call site of a row, and the rows of a
// summary that represent a whole report.
var selfExplanatory = []string{"site", "finding", "next"}

// checkExplained compares the tables and columns of a report with the text of --explain.
func checkExplained(t *testing.T, of *report.Definition, r *report.Report) {
	t.Helper()
	var text bytes.Buffer
	if err := analyze.ExplainSections(&text, of.Sections); err != nil {
		t.Fatal(err)
	}
	var columns []report.Column
	for _, table := range r.Tables {
		columns = append(columns, table.Columns...)
		for _, row := range table.Rows {
			if len(row.Cells) != len(table.Columns) {
				t.Errorf("%s, %s: %d cells for %d columns", of.Name, table.Name, len(row.Cells), len(table.Columns))
			}
		}
	}
	for _, f := range slices.Concat(r.Facts, r.Totals, r.Quality.Facts()) {
		columns = append(columns, f.Column)
	}
	for _, c := range columns {
		if slices.Contains(selfExplanatory, c.Key) {
			continue
		}
		if c.About == "" || !strings.Contains(text.String(), "\n  "+c.Key) {
			t.Errorf("%s does not explain %s", of.Name, c.Key)
		}
	}
}

// TestReportsShareATimeline runs all reports and exports concurrently on one Timeline. The race
// detector checks that they share only data that none of them changes.
func TestReportsShareATimeline(t *testing.T) {
	testclass.Unit(t)
	for name, tape := range recordings {
		t.Run(name, func(t *testing.T) {
			recording := tape(t)
			want := make(map[string][]byte)
			for of, write := range writers(recording.Timeline()) {
				want[of] = written(t, write)
			}
			var running sync.WaitGroup
			for of, write := range writers(recording.Timeline()) { // each run gets a new Timeline, without origins
				for range 2 {
					running.Go(func() {
						if got := written(t, write); !bytes.Equal(got, want[of]) {
							t.Errorf("%s differs when others run at the same time", of)
						}
					})
				}
			}
			running.Wait()
		})
	}
}

// writers returns functions that write all reports and exports of a recording.
func writers(tl *timeline.Timeline) map[string]func(io.Writer) error {
	list := map[string]func(io.Writer) error{
		"page": func(w io.Writer) error {
			_, err := html.WritePage(tl, w, html.Options{Name: "run.parquet"})
			return err
		},
		"perfetto": func(w io.Writer) error {
			_, err := perfetto.WriteTrace(tl, w, perfetto.Options{})
			return err
		},
		"pprof": func(w io.Writer) error {
			p, _, _, err := pprof.BuildProfile(tl, pprof.Options{})
			if err != nil {
				return err
			}
			return p.WriteUncompressed(w)
		},
	}
	for _, of := range analyze.Reports {
		list[of.Name] = func(w io.Writer) error {
			r, err := of.Run(tl, query.Options{})
			if err != nil {
				return err
			}
			return render.WriteReport(w, r, render.Options{Format: "json"})
		}
	}
	return list
}

func written(t *testing.T, write func(io.Writer) error) []byte {
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Error(err)
	}
	return b.Bytes()
}

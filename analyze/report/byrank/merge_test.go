package byrank_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/byrank"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// memoryJob returns a job of 8 ranks on 2 hosts. Each holds weights; rank 5 has three times the cache of the others.
func memoryJob(t *testing.T) *job.Job {
	dir := t.TempDir()
	var paths []string
	for host := range 2 {
		recording := analyzetest.NewTestRecording(t)
		recording.Path = filepath.Join(dir, fmt.Sprintf("node%d.parquet", host))
		recording.Meta.Host, recording.Meta.BootID = fmt.Sprintf("node%d", host), fmt.Sprint(host)
		recording.AddStack(1, "load_weights", "main")
		recording.AddStack(2, "cache_batch", "main")
		for rank := host * 4; rank < host*4+4; rank++ {
			pid := int32(100 + rank)
			recording.AddRow(format.Row{
				Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: analyzetest.Epoch, Device: -1,
			})
			recording.AddIdentity(pid, analyzetest.RankIdentity(rank, 8, "llama"), nil)
			cache := 100*analyzetest.Mib + int64(rank)*analyzetest.Mib
			if rank == 5 {
				cache *= 3
			}
			for stack, bytes := range []int64{1000 * analyzetest.Mib, cache} {
				r := recording.AddAlloc(int64(stack+1)*analyzetest.Second, 1000, int64(pid)<<32+int64(stack)<<31, bytes)
				r.Pid, r.Tid = pid, pid
				site := []string{"load_weights (train.cc:10)", "cache_batch (train.cc:10)"}[stack]
				analyzetest.SetStackAndSite(r, int32(stack+1), site)
			}
		}
		if host == 1 {
			recording.AddXid(
				5*analyzetest.Second,
				1,
				105,
				31,
				format.XidFact{Process: "train", Sources: []string{"kmsg"}},
			)
			recording.AddXid(6*analyzetest.Second, 2, 0, 79, format.XidFact{Sources: []string{"kmsg"}})
		}
		recording.WriteAndOpen()
		paths = append(paths, recording.Path)
	}
	j, err := job.Open(paths, job.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// read returns the parts of a report.
func read(t *testing.T, j *job.Job, whole bool, run report.RunFunc) []byrank.Part {
	t.Helper()
	parts, err := byrank.Read(j, byrank.Options{
		WholeRecordings: whole,
		Prepare:         func(*timeline.Timeline) (query.Options, error) { return query.Options{}, nil },
	}, run)
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

// TestFoldedRanks checks that the rank that differs is a row of its own, and comes first. The others
// are one row.
func TestFoldedRanks(t *testing.T) {
	testclass.Unit(t)
	parts := read(t, memoryJob(t), false, memory.Run)
	r := byrank.Merge(parts, true, 20)
	analyzetest.CompareGoldenReports(t, r, "memory", 140)
	if got := fmt.Sprint(analyzetest.ColumnTexts(t, r, "ranks", "rank")); got != "[5 0-4, 6-7]" {
		t.Error(got)
	}
	want := "[5 0-7 0-4, 6-7]" // the cache of rank 5, the weights, the caches of the others
	if got := fmt.Sprint(analyzetest.ColumnTexts(t, r, "holders", "rank")); got != want {
		t.Error(got)
	}
}

// TestAllRows checks that without folding, each row of each rank is there, with the values of the
// report on this rank.
func TestAllRows(t *testing.T) {
	testclass.Unit(t)
	parts := read(t, memoryJob(t), false, memory.Run)
	r := byrank.Merge(parts, false, 0)
	for _, table := range r.Tables[1:] {
		var want [][]any
		for i := range parts {
			for _, own := range parts[i].Report.Tables {
				rank := report.ColumnIndex(&own, "rank")
				for _, row := range own.Rows {
					cells := []any{fmt.Sprint(i)}
					for k, cell := range row.Cells {
						if k != rank {
							cells = append(cells, cell)
						}
					}
					if own.Name == table.Name {
						want = append(want, cells)
					}
				}
			}
		}
		var got [][]any
		for _, row := range table.Rows {
			got = append(got, row.Cells)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", table.Name, got, want)
		}
	}
	var events int64
	for _, i := range []int{0, 4} {
		events += parts[i].Report.Quality.Events
	}
	if r.Quality.Events != events || events != 16 {
		t.Errorf("%d events, want %d", r.Quality.Events, events)
	}
}

// TestXidsByRank checks that Xids of a recording have the rank of their process, or the ranks of the
// recording.
func TestXidsByRank(t *testing.T) {
	testclass.Unit(t)
	r := byrank.Merge(read(t, memoryJob(t), true, xid.Run), true, 20)
	if got := fmt.Sprint(analyzetest.ColumnTexts(t, r, "xids", "rank")); got != "[5 4-7]" && got != "[4-7 5]" {
		t.Error(got)
	}
}

// TestFactsThatDiffer checks that facts that differ have the ranks of each value.
func TestFactsThatDiffer(t *testing.T) {
	testclass.Unit(t)
	column := report.Column{Key: "verdict", Title: "verdict", Unit: report.UnitText}
	var parts []byrank.Part
	for rank, value := range []string{"grows", "idle", "grows", "grows"} {
		parts = append(parts, byrank.Part{
			Members: []*job.Member{{Rank: rank, Label: fmt.Sprint(rank)}}, Host: "box",
			Report: &report.Report{Facts: []report.Fact{{Column: column, Value: value}}},
		})
	}
	r := byrank.Merge(parts, true, 20)
	if got := r.Facts[0].Value; got != "idle (1); grows (0, 2-3)" {
		t.Error(got)
	}
}

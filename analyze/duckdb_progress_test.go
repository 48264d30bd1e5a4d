package analyze_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// recordingWithProgress returns the path of a recording of a training with two channels, which
// complete 2,000 operations each. An operation takes 10 µs. The clock of the GPU is 300 µs behind.
func recordingWithProgress(t *testing.T) string {
	t.Helper()
	recording := analyzetest.TrainingRecording(t)
	analyzetest.AddRandomProgram(recording, rand.New(rand.NewPCG(5, 5)), 2000)
	for i := range int64(2000) {
		for channel := range int32(2) {
			end := analyzetest.Epoch + (i+1)*10*analyzetest.Us
			recording.AddRow(format.Row{
				Kind: format.KindProgress, Pid: 42, Channel: channel + 1, Counter: i + 1,
				GPUTimeNs: end - 300*analyzetest.Us, StartNs: end + 2*analyzetest.Us,
			})
		}
	}
	recording.WriteAndOpen()
	return recording.Path
}

func TestDuckDBReadsProgress(t *testing.T) {
	testclass.Browser(t)
	path := recordingWithProgress(t)
	got := viewers.QueryDuckDB(t, fmt.Sprintf(`
with operations as (
	select channel, counter - lag(counter) over w as n, gpu_time_ns - lag(gpu_time_ns) over w as ns
	from read_parquet('%s') where class = 'progress' window w as (partition by pid, channel order by start_ns)
)
select channel, cast(sum(n) as integer) as operations, cast(sum(ns) as bigint) // cast(sum(n) as bigint) as ns
from operations group by channel order by channel`, path),
		fmt.Sprintf("select cast(count(*) as integer) as n from read_parquet('%s') where kind = 'progress' "+
			"and start_ns - gpu_time_ns = 302000 and class = 'progress' and device = -1", path))
	for i, want := range []string{
		`[{"channel":1,"operations":1999,"ns":"10000"},{"channel":2,"operations":1999,"ns":"10000"}]`,
		`[{"n":4000}]`,
	} {
		if got[i] != want {
			t.Errorf("query %d: %s, want %s", i, got[i], want)
		}
	}
}

// TestDuckDBSkipsRowGroupsByClass checks that statistics of the column class let a reader skip row
// groups of other classes, and DuckDB does so.
func TestDuckDBSkipsRowGroupsByClass(t *testing.T) {
	testclass.Browser(t)
	path := recordingWithProgress(t)
	read := func(where string) string {
		return fmt.Sprintf("explain (analyze, format json) select sum(start_ns), count(distinct name) "+
			"from read_parquet('%s') where %s", path, where)
	}
	got := viewers.QueryDuckDB(t,
		fmt.Sprintf("select stats_min_value as least, stats_max_value as greatest "+
			"from parquet_metadata('%s') where path_in_schema = 'class' order by row_group_id", path),
		"set enable_external_file_cache = false", // otherwise a query reads nothing that another one has read
		read("class = 'none'"),
		read("class = 'progress'"),
		read("class <> ''"),
	)
	var bounds []struct{ Least, Greatest string }
	if err := json.Unmarshal([]byte(got[0]), &bounds); err != nil {
		t.Fatal(err)
	}
	var classes []string
	for _, b := range bounds {
		if b.Least != b.Greatest {
			t.Errorf("a row group has the classes %s to %s", b.Least, b.Greatest)
		}
		classes = append(classes, b.Least)
	}
	if want := []string{"fact", "stack", "sample", "memory", "call", "progress"}; !slices.Equal(classes, want) {
		t.Errorf("classes %v, want %v", classes, want)
	}
	footer := bytesRead(t, got[2])
	one, all := bytesRead(t, got[3])-footer, bytesRead(t, got[4])-footer
	t.Logf("%d bytes read for one class, %d for all, %d for the footer", one, all, footer)
	if footer == 0 || one == 0 || one > all/2 {
		t.Errorf("%d bytes read for one class, %d for all", one, all)
	}
}

// bytesRead returns the number of bytes that DuckDB read from files, from the profile of a query.
func bytesRead(t *testing.T, explained string) int64 {
	t.Helper()
	var rows []struct {
		Plan string `json:"explain_value"`
	}
	var profile struct {
		Bytes int64 `json:"total_bytes_read"`
	}
	if err := json.Unmarshal([]byte(explained), &rows); err != nil || len(rows) != 1 {
		t.Fatal(explained, err)
	}
	if err := json.Unmarshal([]byte(rows[0].Plan), &profile); err != nil {
		t.Fatal(err)
	}
	return profile.Bytes
}

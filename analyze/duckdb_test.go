package analyze_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// liveBySQL selects the live memory: it orders the events of each pointer by effect and takes the
// last event.
const liveBySQL = `
with events as (
	select pid, ptr, bytes, kind, case kind when 'alloc' then start_ns + dur_ns else start_ns end as effect
	from read_parquet('%s') where kind in ('alloc', 'free') and result = 0 and flags & 3 = 0 and ptr <> 0
), last as (
	select kind, bytes, row_number() over (partition by pid, ptr order by effect desc, kind) as n from events
)
select cast(coalesce(sum(bytes), 0) as varchar) as live, cast(count(*) as varchar) as blocks from last where n = 1 and kind = 'alloc'`

func TestDuckDBReadsTheRecording(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.TrainingRecording(t)
	analyzetest.AddRandomProgram(recording, rand.New(rand.NewPCG(5, 5)), 2000)
	tl := recording.Timeline()
	kinds := make(map[string]int)
	for _, r := range recording.Rows {
		kinds[r.Kind]++
	}
	r, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	from := fmt.Sprintf("from read_parquet('%s')", recording.Path)
	got := viewers.QueryDuckDB(t,
		"select kind, cast(count(*) as integer) as n "+from+" group by kind",
		fmt.Sprintf(liveBySQL, recording.Path),
		"select cast(max(value) as bigint) as used "+from+" where kind = 'nvml' and name = 'memory_used_bytes'",
		"select frames[1].func as leaf, len(frames) as n "+from+" where kind = 'stack' and stack_id = 3",
		"select column_type as type "+"from (describe select start_ns, kind, value "+from+")",
	)
	var rows []struct {
		Kind string
		N    int
	}
	if err := json.Unmarshal([]byte(got[0]), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if kinds[row.Kind] != row.N {
			t.Errorf("%d rows of kind %s, want %d", row.N, row.Kind, kinds[row.Kind])
		}
		delete(kinds, row.Kind)
	}
	if len(kinds) > 0 {
		t.Errorf("no rows of %v", kinds)
	}
	for i, want := range map[int]string{
		1: fmt.Sprintf(`[{"live":"%d","blocks":"%d"}]`, r.Totals[0].Value, r.Totals[1].Value),
		2: fmt.Sprintf(`[{"used":"%d"}]`, 10<<30+5*240*analyzetest.Mib),
		3: `[{"leaf":"cuMemAlloc_v2","n":"5"}]`,
		4: `[{"type":"BIGINT"},{"type":"VARCHAR"},{"type":"DOUBLE"}]`,
	} {
		if got[i] != want {
			t.Errorf("query %d: %s, want %s", i, got[i], want)
		}
	}
}

func TestDuckDBReadsSegments(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.TrainingRecording(t)
	w, err := format.Create(recording.Path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range recording.Rows {
		if err := w.Write(format.ClassOf(r.Kind), []format.Row{*r}); err != nil {
			t.Fatal(err)
		}
		if i%1000 == 999 {
			if err := w.Rotate(recording.Meta); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Rotate(recording.Meta), w.Flush()); err != nil {
		t.Fatal(err)
	}
	got := viewers.QueryDuckDB(t, fmt.Sprintf("select cast(count(*) as integer) as n from "+
		"read_parquet('%s/*.parquet')", w.Dir()))
	if want := fmt.Sprintf(`[{"n":%d}]`, len(recording.Rows)); got[0] != want {
		t.Errorf("%s, want %s", got[0], want)
	}
}

package analyze_test

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestDuckDBReadsVia sums up memory by the lines for which autograd threads allocated it. The stack of one line has
// another number in calls than in the table of stacks.
func TestDuckDBReadsVia(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.BackwardRecording(t)
	recording.WriteAndOpen()
	got := viewers.QueryDuckDB(t, fmt.Sprintf(`
with rows as (select * from read_parquet('%s')),
	aliases as (select pid, stack_id, cast(value as integer) as known from rows where kind = 'stack_alias'),
	allocs as (
		select r.bytes, coalesce(a.known, r.via_stack_id) as via from rows r
		left join aliases a on a.pid = r.pid and a.stack_id = r.via_stack_id where r.kind = 'alloc'
	)
select via, cast(sum(bytes) as bigint) as bytes, cast(count(*) as integer) as n from allocs group by via order by via`,
		recording.Path),
		fmt.Sprintf("select typeof(via_stack_id) as type, cast(count(*) as integer) as n from read_parquet('%s') "+
			"where kind = 'free' and via_stack_id = 0 group by 1", recording.Path))
	for i, want := range []string{
		`[{"via":2,"bytes":"209715200","n":100},{"via":3,"bytes":"104857600","n":100}]`,
		`[{"type":"INTEGER","n":100}]`,
	} {
		if got[i] != want {
			t.Errorf("query %d: %s, want %s", i, got[i], want)
		}
	}
}

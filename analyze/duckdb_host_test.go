package analyze_test

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestDuckDBReadsHost runs queries about class host: waits by reason, CPU time of threads, and the busiest line.
func TestDuckDBReadsHost(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.HostRecording(t)
	woken := recording.AddWait(43, 100*analyzetest.Ms, 30*analyzetest.Ms, analyzetest.Ms, format.StateSleeping, 0,
		format.WaitFact{Reason: format.ReasonCondition})
	woken.RanNs = 7 * analyzetest.Ms
	recording.AddWaker(woken, 77, 78, "pt_data_worker", "write")
	recording.WriteAndOpen()
	got := viewers.QueryDuckDB(
		t,
		fmt.Sprintf(`select coalesce(message::json->>'reason', 'unknown') as reason, cast(count(*) as integer) as waits,
	cast(sum(dur_ns) / 1000000 as integer) as ms from read_parquet('%s') where kind = 'wait'
	group by reason order by ms desc`, recording.Path),
		fmt.Sprintf(`select tid, cast((max(value) - min(value)) / 1000000 as integer) as ms from read_parquet('%s')
	where kind = 'host' and name = 'running_nanoseconds' group by all order by tid`, recording.Path),
		fmt.Sprintf(
			`with stacks as (select stack_id, frames[1].func as leaf from read_parquet('%s') where kind = 'stack')
select leaf, cast(sum(dur_ns) / 1000000 as integer) as ms from read_parquet('%s') join stacks using (stack_id)
	where kind = 'cpu_sample' group by leaf order by ms desc`,
			recording.Path,
			recording.Path,
		),
		fmt.Sprintf(
			`select cast(count(*) as integer) as n from read_parquet('%s') where class = 'host' and device != -1`,
			recording.Path,
		),
		fmt.Sprintf(
			`select pid, tid, waker_pid, waker_tid, any_value(message::json->>'waker') as waker,
	cast(sum(dur_ns) / 1e6 as integer) as ms, cast(sum(ran_ns) / 1e6 as integer) as ran_ms from read_parquet('%s')
	where kind = 'wait' and waker_tid != 0 group by all order by ms desc`,
			recording.Path,
		),
	)
	for i, want := range []string{
		`[{"reason":"poll","waits":10,"ms":4000},{"reason":"cuda","waits":10,"ms":1000},` +
			`{"reason":"gil","waits":10,"ms":600},{"reason":"file","waits":10,"ms":200},` +
			`{"reason":"run_queue","waits":10,"ms":150},{"reason":"unknown","waits":1,"ms":70},` +
			`{"reason":"condition","waits":1,"ms":30}]`,
		`[{"tid":42,"ms":3980},{"tid":43,"ms":1000},{"tid":77,"ms":9500}]`,
		`[{"leaf":"preprocess","ms":800},{"leaf":"gather","ms":200}]`,
		`[{"n":0}]`,
		`[{"pid":42,"tid":43,"waker_pid":77,"waker_tid":78,"waker":"pt_data_worker","ms":30,"ran_ms":7}]`,
	} {
		if got[i] != want {
			t.Errorf("query %d: %s, want %s", i, got[i], want)
		}
	}
}

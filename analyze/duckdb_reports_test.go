package analyze_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// sqlReport computes the table of a report in SQL. Rows are matched by the columns in keys; all
// other columns of the query must equal the report's columns of the same name. In the query, FROM
// is the recording, TIMED selects calls whose duration and result are known, and ERROR selects
// failed calls. P50, P95 and P99 are exact quantiles of TIMED calls.
type sqlReport struct {
	name, table, keys, query string
}

var sqlReports = []sqlReport{
	{
		"api",
		"api",
		"name",
		`select name, count(*) as calls, count(*) filter (TIMED) as timed_calls, sum(dur_ns) filter (TIMED) as total_ns, min(dur_ns) filter (TIMED) as min_ns,
		max(dur_ns) filter (TIMED) as max_ns, P50 as med_ns, P95 as p95_ns, P99 as p99_ns, count(*) filter (TIMED and ERROR) as errors, count(*) filter (flags & 3 <> 0) as open_calls
		FROM where kind in ('launch', 'memcpy', 'memset', 'sync', 'api', 'alloc', 'free') group by name`,
	},
	{
		"api.site",
		"api",
		"name site",
		`select name, site, count(*) as calls, sum(dur_ns) filter (TIMED) as total_ns, P95 as p95_ns
		FROM where kind in ('launch', 'memcpy', 'memset', 'sync', 'api', 'alloc', 'free') group by name, site`,
	},
	{
		"kernels",
		"kernels",
		"kernel",
		`select kernel, count(*) filter (not (TIMED and ERROR) and flags & 16 = 0) as launches, count(*) filter (not (TIMED and ERROR) and flags & 16 <> 0) as captured,
		count(*) filter (TIMED and ERROR) as errors, count(*) filter (TIMED) as timed_launches, sum(dur_ns) filter (TIMED) as host_sum_ns, count(distinct site) as sites,
		count(*) filter (not (TIMED and ERROR) and flags & 16 = 0 and grid_x * block_x < 8192) as tiny_launches
		FROM where kind = 'launch' and name not like 'cuGraphLaunch%' group by kernel`,
	},
	{
		"kernels",
		"totals",
		"",
		`select (select count(distinct kernel) FROM where kind = 'launch' and name not like 'cuGraphLaunch%') as kernels, sum(n) as launches, max(n) as peak_launches_per_second
		from (select count(*) as n FROM where kind = 'launch' and name not like 'cuGraphLaunch%' and not (TIMED and ERROR) and flags & 16 = 0 group by (start_ns - EPOCH) // 1000000000)`,
	},
	{
		"copies",
		"copies",
		"direction mode size",
		`select copy_kind as direction, if(name like '%Async%', 'async', 'blocking') as mode,
		case when bytes < 4096 then '< 4 KiB' when bytes < 65536 then '4 KiB to 64 KiB' when bytes < 1048576 then '64 KiB to 1 MiB' when bytes < 16777216 then '1 MiB to 16 MiB' else '16 MiB to 256 MiB' end as size,
		count(*) as copies, coalesce(sum(bytes) filter (not (TIMED and result <> 0) and flags & 16 = 0), 0) as bytes, sum(dur_ns) filter (TIMED) as host_sum_ns, count(*) filter (TIMED) as timed_copies,
		P95 as host_p95_ns, count(*) filter (TIMED and ERROR) as errors, count(*) filter (flags & 3 <> 0) as open_copies
		FROM where kind = 'memcpy' group by direction, mode, size`,
	},
	{
		"sync",
		"sync",
		"name site",
		`select name, site, count(*) as waits, count(*) filter (TIMED) as timed_waits, sum(dur_ns) filter (TIMED) as wait_sum_ns, max(dur_ns) filter (TIMED) as max_ns,
		P95 as p95_ns, count(*) filter (TIMED and ERROR) as errors, count(*) filter (flags & 3 <> 0) as open_waits, count(distinct (pid, tid)) as threads
		FROM where kind = 'sync' and name not like '%Query%' group by name, site`,
	},
	{
		"gaps",
		"processes",
		"pid device",
		gapsBySQL + ` select pid, device, count(*) filter (gap >= 8000000) as gaps, sum(gap) filter (gap >= 8000000) as gap_sum_ns, max(gap) filter (gap >= 8000000) as gap_max_ns,
		list_sort(list(gap) filter (gap >= 8000000))[cast(ceil(0.5 * count(*) filter (gap >= 8000000)) as integer)] as gap_med_ns,
		list_sort(list(gap) filter (gap >= 8000000))[cast(ceil(0.95 * count(*) filter (gap >= 8000000)) as integer)] as gap_p95_ns, count(*) as launches from gap group by pid, device`,
	},
	{
		"gaps",
		"distribution",
		"pid device length",
		gapsBySQL + ` select pid, device, case when gap < 10000 then '< 10us' when gap < 100000 then '10us to 100us' when gap < 1000000 then '100us to 1ms'
		when gap < 10000000 then '1ms to 10ms' when gap < 100000000 then '10ms to 100ms' when gap < 1000000000 then '100ms to 1s' else '>= 1s' end as length, count(*) as intervals, sum(gap) as total_ns
		from gap where gap > 0 group by pid, device, length`,
	},
	{
		"errors",
		"errors",
		"name site result",
		`select name, site, result, count(*) as calls, count(distinct (pid, tid)) as thread_count, min(start_ns) - EPOCH as first_ns, max(start_ns) - EPOCH as last_ns
		FROM where kind in ('launch', 'memcpy', 'memset', 'sync', 'api', 'alloc', 'free') and TIMED and ERROR group by name, site, result`,
	},
}

// gapsBySQL selects the intervals from the latest return of a launch to the next launch, for each
// device and for all devices of a process.
const gapsBySQL = `with launch as (select pid, start_ns, unnest([cast(device as varchar), 'all']) as device, if(flags & 32 <> 0, start_ns, start_ns + dur_ns) as end_ns
	FROM where kind = 'launch' and flags & 18 = 0 and (flags & 35 <> 0 or result = 0)),
	gap as (select pid, device, start_ns - max(end_ns) over (partition by pid, device order by start_ns rows between unbounded preceding and 1 preceding) as gap from launch)`

func (s *sqlReport) sql(path string) string {
	quantile := func(q string) string {
		return "list_sort(list(dur_ns) filter (TIMED))[cast(ceil(" + q + " * count(*) filter (TIMED)) as integer)]"
	}
	sql := strings.NewReplacer("P50", quantile("0.5"), "P95", quantile("0.95"), "P99", quantile("0.99")).
		Replace(s.query)
	return strings.NewReplacer("FROM", fmt.Sprintf("from read_parquet('%s')", path), "TIMED", "flags & 35 = 0", "ERROR", "result not in (0, 4, 600)", "EPOCH", fmt.Sprint(analyzetest.Epoch)).
		Replace(sql)
}

func TestReportsEqualDuckDB(t *testing.T) {
	testclass.Browser(t)
	for seed := range uint64(3) {
		recording := randomCalls(t, 100+seed)
		tl := recording.Timeline()
		var queries []string
		for i := range sqlReports {
			queries = append(queries, sqlReports[i].sql(recording.Path))
		}
		reports := callReports(tl)
		reports["errors"] = func(opt query.Options) (*report.Report, error) { return cudaerrors.Run(tl, opt) }
		reports["gaps"] = func(o query.Options) (*report.Report, error) {
			return gaps.RunWithOptions(tl, gaps.Options{Options: o, MinGapNs: 8 * analyzetest.Ms})
		}
		for i, answer := range viewers.QueryDuckDB(t, queries...) {
			s := &sqlReports[i]
			r, err := reports[s.name](query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Run(
				fmt.Sprintf("%d/%s/%s", seed, s.name, s.table),
				func(t *testing.T) { equalsSQL(t, r, s.table, strings.Fields(s.keys), answer) },
			)
		}
	}
}

// equalsSQL compares a table of a report with DuckDB's answer: the number of rows, and each row.
func equalsSQL(t *testing.T, r *report.Report, table string, keys []string, answer string) {
	t.Helper()
	var want []map[string]any
	if err := json.Unmarshal([]byte(answer), &want); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]map[string]any)
	for _, row := range reportRows(r, table) {
		got[rowKey(row, keys)] = row
	}
	if len(got) != len(want) || len(want) == 0 {
		t.Fatalf("%d rows, DuckDB has %d", len(got), len(want))
	}
	for _, w := range want {
		row := got[rowKey(w, keys)]
		if row == nil {
			t.Fatalf("no row %s", rowKey(w, keys))
		}
		for name, v := range w {
			if value, ok := row[name]; !ok || !sameNumber(name, value, v) {
				t.Errorf("%s: %s is %v, in DuckDB %v", rowKey(w, keys), name, value, v)
			}
		}
	}
}

// reportRows returns the rows of a table as maps by column key, or the totals as one row.
func reportRows(r *report.Report, table string) (rows []map[string]any) {
	if table == "totals" {
		row := make(map[string]any)
		for _, f := range r.Totals {
			row[f.Key] = f.Value
		}
		return []map[string]any{row}
	}
	for i := range r.Tables {
		if r.Tables[i].Name != table {
			continue
		}
		for _, cells := range r.Tables[i].Rows {
			row := make(map[string]any)
			for c, column := range r.Tables[i].Columns {
				row[column.Key] = cells.Cells[c]
			}
			rows = append(rows, row)
		}
	}
	return rows
}

func rowKey(row map[string]any, keys []string) string {
	var parts []string
	for _, key := range keys {
		text := fmt.Sprint(row[key])
		if key == "device" { // the cell also has the name of the GPU
			text, _, _ = strings.Cut(text, " ")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "|")
}

// sameNumber compares a value with DuckDB's. DuckDB writes large numbers as text, and sums without
// values as NULL. Quantiles may differ by the documented error.
func sameNumber(name string, got, want any) bool {
	if want == nil {
		return got == nil || got == int64(0)
	}
	text := fmt.Sprint(want)
	if f, ok := want.(float64); ok {
		text = strconv.FormatFloat(f, 'f', -1, 64)
	}
	if fmt.Sprint(got) == text || name == "device" && strings.HasPrefix(fmt.Sprint(got), text+" ") {
		return true
	}
	n, isNumber := got.(int64)
	exact, err := strconv.ParseFloat(text, 64)
	isQuantile := strings.Contains(name, "p95") || strings.Contains(name, "p99") || strings.Contains(name, "med")
	return isNumber && err == nil && isQuantile && math.Abs(float64(n)-exact) <= stats.SketchMaxErrorPct/100*exact
}

// TestAllocatorEqualsDuckDB compares the live tensors by call site with a query in DuckDB, and the
// totals with the allocator's last event.
func TestAllocatorEqualsDuckDB(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.NewTestRecording(t)
	world := analyzetest.NewTorchAllocator(recording, rand.New(rand.NewPCG(9, 9)), 42, 0, analyzetest.TorchConf{})
	for range 20_000 {
		world.RunRandomOperation()
	}
	world.AddEvent(format.AllocatorSnapshot, 0, 0, nil)
	recording.Meta.EndNs = analyzetest.Epoch + world.Now + analyzetest.Second
	tl := recording.Timeline()
	leakReport, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	states, err := state.ReadAllocators(tl, 0)
	if err != nil || len(states) != 1 {
		t.Fatalf("%v, %d allocators", err, len(states))
	}
	from := fmt.Sprintf("from read_parquet('%s') where kind = 'allocator'", recording.Path)
	answers := viewers.QueryDuckDB(
		t,
		`with event as (select name, site, bytes, row_number() over (partition by ptr order by start_ns desc) as n `+from+` and name in ('alloc', 'free_requested')),
			began as (select site, count(*) as allocs, sum(bytes) as alloc_bytes `+from+` and name = 'alloc' group by site),
			live as (select site, count(*) as n, sum(bytes) as bytes from event where n = 1 and name = 'alloc' group by site)
		select began.site as site, allocs, cast(alloc_bytes as bigint) as alloc_bytes, coalesce(live.n, 0) as live_count, cast(coalesce(live.bytes, 0) as bigint) as live_bytes
		from began left join live on began.site = live.site`,
		`select count(*) as events, last(allocated_bytes order by start_ns) as allocated, last(reserved_bytes order by start_ns) as reserved, count(*) filter (name = 'oom') as failed, count(*) filter (name = 'alloc') -
			count(*) filter (name = 'free_requested') as allocations `+from,
	)
	equalsSQL(t, leakReport, "leaks", []string{"site"}, answers[0])
	s := &states[0]
	book := new(report.Report)
	for key, n := range map[string]int64{
		"events": s.Events, "allocated": s.Allocated, "reserved": s.Reserved,
		"failed": s.OutOfMemory, "allocations": s.Allocations,
	} {
		book.Totals = append(book.Totals, report.Fact{Column: report.Column{Key: key}, Value: n})
	}
	equalsSQL(t, book, "totals", nil, answers[1])
}

// TestLiveMemoryByPlaceEqualsDuckDB compares the live driver memory by call site with a query in
// DuckDB.
func TestLiveMemoryByPlaceEqualsDuckDB(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.TrainingRecording(t)
	leakReport, err := leaks.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	answers := viewers.QueryDuckDB(
		t,
		fmt.Sprintf(
			`with call as (select kind, bytes, if(site = '', '(no stack)', site) as place, ptr, if(kind = 'alloc', start_ns + dur_ns, start_ns) as effect
			from read_parquet('%s') where kind in ('alloc', 'free') and result = 0 and flags & 3 = 0),
		final as (select *, row_number() over (partition by ptr order by effect desc) as n, lead(kind) over (partition by ptr order by effect) as next from call)
		select place as site, count(*) as allocs, count(*) filter (next = 'free') as frees, cast(coalesce(sum(bytes) filter (n = 1), 0) as bigint) as live_bytes, count(*) filter (n = 1) as live_count
		from final where kind = 'alloc' group by place`,
			recording.Path,
		),
	)
	equalsSQL(t, leakReport, "leaks", []string{"site"}, answers[0])
}

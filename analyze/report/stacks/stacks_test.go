package stacks_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/stacks"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestStacksLookAsBefore(t *testing.T) {
	testclass.Unit(t)
	r, err := stacks.Run(analyzetest.PytorchStacksRecording(t).Timeline(), query.Options{Top: 6, MaxFrames: 8})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range render.ListFormats() {
		analyzetest.CompareGolden(t, "stacks."+f, analyzetest.RenderReport(t, r, render.Options{Format: f}))
	}
	analyzetest.CompareGolden(t, "stacks.narrow.table", analyzetest.RenderReport(t, r, render.Options{Width: 80}))
}

// stackCalls returns the column of calls by stack id.
func stackCalls(t *testing.T, tl *timeline.Timeline, opt query.Options) string {
	t.Helper()
	r, err := stacks.Run(tl, opt)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	table := &r.Tables[len(r.Tables)-1]
	for i := range table.Rows {
		row := &table.Rows[i]
		list = append(list, fmt.Sprintf("%v:%v", table.Cell(row, "stack_id"), table.Cell(row, "calls")))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestStacksFollowTheFilters(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.PytorchStacksRecording(t).Timeline()
	for name, c := range map[string]struct {
		opt  query.Options
		want string
	}{
		"all":      {query.Options{}, "1:500 2:500 3:40 4:20 5:7 6:7 7:6 8:1 99:1"},
		"from, to": {query.Options{Filter: query.Filter{FromNs: analyzetest.Epoch + 3*analyzetest.Second, ToNs: analyzetest.Epoch + 4*analyzetest.Second - 1}}, "1:25 2:25 4:20"},
		"tid":      {query.Options{Filter: query.Filter{Tids: []int32{43}}}, "5:7 6:7 7:6"},
		"stream":   {query.Options{Filter: query.Filter{Streams: []int64{7}}}, "2:500"},
		"pid":      {query.Options{Filter: query.Filter{Pids: []int32{7}}}, ""},
		"kernel": {query.Options{Filter: query.Filter{Kernel: regexp.MustCompile("^add$")}}, "1:500 3:40 5:7 6:7 " +
			"7:6 8:1 99:1"},
		"top": {query.Options{Top: 2}, "1:500 2:500"},
	} {
		if got := stackCalls(t, tl, c.opt); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	if r, err := stacks.Run(tl, query.Options{Filter: query.Filter{Pids: []int32{7}}}); err != nil || r.NoMatch == nil {
		t.Errorf("a filter that matches nothing: %v, %+v", err, r.NoMatch)
	}
	if _, err := stacks.Run(tl, query.Options{Sort: "colour"}); err == nil {
		t.Error("sorted by colour")
	}
}

func TestStackCountsAddUp(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.PytorchStacksRecording(t).Timeline()
	r, err := stacks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	number := func(name string) float64 {
		v, ok, known := r.FindNumber(name)
		if !ok || !known {
			t.Errorf("no number %s", name)
		}
		return v
	}
	var sum float64
	for _, status := range stacks.StackStatuses {
		if status == format.StackRationed {
			continue // the recording has none, so the fact is absent
		}
		sum += number(status + "_calls")
	}
	var calls, share float64
	states := &r.Tables[0]
	for i := range states.Rows {
		calls += float64(states.Cell(&states.Rows[i], "calls").(int64))
		share += states.Cell(&states.Rows[i], "share_pct").(float64)
	}
	if all := number(
		"calls",
	); sum != all || calls != all || all != float64(tl.Scan.Events) || share < 99.99 ||
		share > 100.01 {
		t.Errorf("%v calls, by totals %v, by states %v (%v%%), recorded %d", all, sum, calls, share, tl.Scan.Events)
	}
	// 20 of the 1083 calls are nested and have no stack of their own.
	for name, want := range map[string]float64{
		"stacks_inferred_pct":  100 * 936 / 1063.,
		"stacks_truncated_pct": 100 * 40 / 1063.,
		"stacks_none_pct":      100 / 1063.,
		"stacks_checked":       700, "stacks_wrong": 2, "stacks_wrong_pct": 100 * 62 / 936., "stacks": 9,
	} {
		if got := number(name); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	if text := r.Quality.String(); !strings.Contains(text, "inferred stacks 6.62% wrong (2 of 700 checked)") ||
		strings.Contains(text, "parent") {
		t.Error(text)
	}
	if slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "checked") }) ||
		len(r.Notes) != 1 {
		t.Errorf("notes %q", r.Notes)
	}
}

func TestInferenceThatWasNotMeasured(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		notes []string
		want  string
	}{
		"no note":               {nil, "inferred stacks not checked"},
		"nothing checked":       {[]string{`{"checked":0,"wrong":0}`}, "inferred stacks not checked"},
		"more wrong than right": {[]string{`{"checked":5,"wrong":6}`}, "inferred stacks not checked"},
		"negative":              {[]string{`{"checked":-5,"wrong":-6}`}, "inferred stacks not checked"},
		"too many":              {[]string{`{"checked":9223372036854775807,"wrong":1}`}, "inferred stacks not checked"},
		"negative busy":         {[]string{`{"checked":5,"busy":-1}`}, "inferred stacks not checked"},
		"too many inferred": {[]string{`{"checked":5,"inferred":9223372036854775807}`}, "inferred stacks not " +
			"checked"},
		"no JSON": {[]string{`{`}, "inferred stacks not checked"},
		"none wrong": {[]string{`{"inferred":9,"checked":5,"wrong":0}`}, "inferred stacks 0.00% wrong (0 " +
			"of 5 checked)"},
		"two classes":         {[]string{`{"class":"a","inferred":300,"checked":5,"wrong":1,"wrong_estimated":31}`, `{"class":"b","inferred":10,"checked":5,"wrong":0}`}, "inferred stacks 10.00% wrong (1 of 10 checked)"},
		"unchecked stacks":    {[]string{`{"inferred":200,"checked":5,"wrong":1,"wrong_estimated":2,"unchecked":30}`}, "inferred stacks 1.00% wrong (1 of 5 checked), 15% could not be checked within --max-overhead"},
		"few unchecked":       {[]string{`{"inferred":200,"checked":5,"wrong":1,"wrong_estimated":2,"unchecked":1}`}, "inferred stacks 1.00% wrong (1 of 5 checked), GPU timing none"},
		"more wrong than all": {[]string{`{"inferred":10,"checked":5,"wrong":1,"wrong_estimated":31}`}, "inferred stacks 100.00% wrong (1 of 5 checked)"},
		"estimate too big":    {[]string{`{"inferred":10,"checked":5,"wrong":1,"wrong_estimated":9223372036854775807}`}, "inferred stacks not checked"},
	} {
		recording := analyzetest.NewTestRecording(t)
		analyzetest.SetStackStatus(
			recording.AddCall(format.KindLaunch, "cuLaunchKernel", 1, 1),
			1,
			format.StackInferred,
		)
		for _, text := range c.notes {
			recording.AddRow(format.Row{Kind: format.KindNote, Name: format.NoteStackInference, Message: text})
		}
		r, err := summary.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Quality.String(); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s", name, got)
		}
		if _, ok, known := r.FindNumber("stacks_wrong_pct"); !known || ok != strings.Contains(c.want, "%") {
			t.Errorf("%s: stacks_wrong_pct is known: %v", name, ok)
		}
	}
}

func TestStacksOfADamagedRecording(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddStackRow(1, format.StackTruncated, "of a later version", analyzetest.HostileName, nil)
	analyzetest.SetStackStatus(recording.AddCall(format.KindLaunch, "cuLaunchKernel", 1, 1), 1, format.StackTruncated)
	analyzetest.SetStackStatus(recording.AddCall(format.KindLaunch, "cuLaunchKernel", 2, 1), 1, "of a later version")
	analyzetest.SetStackStatus(recording.AddCall(format.KindLaunch, "cuLaunchKernel", 3, 1), -5, "")
	analyzetest.SetStackStatus(recording.AddCall(format.KindLaunch, "cuLaunchKernel", 4, 1), 0, format.StackTruncated)
	r, err := stacks.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range r.Tables {
		for _, row := range table.Rows {
			got = append(got, fmt.Sprint(row.Cells[:4]...))
		}
	}
	if len(got) != 4+2+2 { // states, ends, stacks
		t.Errorf("%q", got)
	}
	if !json.Valid(analyzetest.RenderReport(t, r, render.Options{Format: "json"})) {
		t.Error("not JSON")
	}
}

// TestDuckDBCountsTheSameStacks checks that the counts by stack and status equal DuckDB's.
func TestDuckDBCountsTheSameStacks(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.PytorchStacksRecording(t)
	tl := recording.Timeline()
	got := viewers.QueryDuckDB(
		t,
		fmt.Sprintf(
			`select string_agg(stack_id || ':' || n, ' ' order by cast(stack_id as varchar) || ':' || n) as list from (
		select stack_id, count(*) as n from read_parquet('%s') where kind <> 'stack' and stack_id <> 0 group by stack_id)`,
			recording.Path,
		),
		fmt.Sprintf(
			`select cast(count(*) as integer) as n from read_parquet('%s') c join read_parquet('%s') s on s.kind = 'stack' and s.stack_id = c.stack_id
			where c.kind <> 'stack' and c.stack_status = 'truncated' and s.message = 'mapping'`,
			recording.Path,
			recording.Path,
		),
	)
	if want := fmt.Sprintf(`[{"list":"%s"}]`, stackCalls(t, tl, query.Options{})); got[0] != want {
		t.Errorf("%s, want %s", got[0], want)
	}
	r, err := stacks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	states := &r.Tables[0]
	for i := range states.Rows {
		row := &states.Rows[i]
		want := fmt.Sprintf(`[{"n":%v}]`, states.Cell(row, "calls"))
		if states.Cell(row, "reason") == format.TruncationMapping && got[1] != want {
			t.Errorf("%s, want %s", got[1], want)
		}
	}
}

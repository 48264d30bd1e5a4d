package analyze_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/api"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// cluster returns a recording of a training with four ranks in two pods of one job, and a process
// outside of any job.
func cluster(t testing.TB) *analyzetest.TestRecording {
	recording := analyzetest.FourRanksRecording(t)
	for pid := int32(42); pid < 46; pid++ {
		rank := int(pid - 42)
		id := analyzetest.RankIdentity(rank, 4, "demo")
		id.SlurmJob, id.Pod, id.Namespace, id.Node = "77", fmt.Sprintf("train-%d", rank/2), "research", "node-1"
		container := strings.Repeat(fmt.Sprintf("%d123456789abcdef", rank/2), 4)
		recording.AddIdentity(
			pid,
			id,
			map[string]any{
				"container_id": container,
				"cgroup":       "1:name=systemd:/\n0::/kubepods/pod" + fmt.Sprint(rank/2) + "/" + container,
			},
		)
		a := recording.AddAlloc(
			int64(rank)*analyzetest.Ms,
			analyzetest.Us,
			int64(pid)<<40,
			int64(rank+1)*analyzetest.Mib,
		)
		a.Pid, a.Tid = pid, pid
	}
	recording.AddRow(
		format.Row{
			Kind:    format.KindProcess,
			Name:    "monitor",
			Pid:     50,
			StartNs: analyzetest.Epoch,
			Device:  -1,
			Message: `{"exe":"/bin/monitor","cgroup":"0::/system.slice/monitor.service"}`,
		},
	)
	a := recording.AddAlloc(9*analyzetest.Ms, analyzetest.Us, 50<<40, 100*analyzetest.Mib)
	a.Pid, a.Tid = 50, 50
	return recording
}

func TestReportsByIdentity(t *testing.T) {
	testclass.Unit(t)
	tl := cluster(t).Timeline()
	opt := query.Options{Top: 20, MaxFrames: 12}
	for name, make := range map[string]func() (*report.Report, error){
		"identity.summary": func() (*report.Report, error) { return summary.Run(tl, opt) },
		"identity.hang":    func() (*report.Report, error) { return hang.RunWithOptions(tl, hang.Options{Options: opt}) },
	} {
		r, err := make()
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CompareGolden(t, name+".table", analyzetest.RenderReport(t, r, render.Options{Width: 140}))
		analyzetest.CompareGolden(t, name+".json", analyzetest.RenderReport(t, r, render.Options{Format: "json"}))
	}
	for by, want := range map[string]string{
		"rank":      "[(no rank) 3 2 1 0]",
		"job":       "[(no job) demo]",
		"container": "[(no container) 1123456789ab 0123456789ab]",
		"pod":       "[(no pod) research/train-1 research/train-0]",
		"cgroup":    "[/system.slice/monitor.service /kubepods/pod1/",
	} {
		leakReport, err := leaks.Run(tl, query.Options{GroupBy: by, Top: 9})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(analyzetest.ColumnTexts(t, leakReport, "leaks", by)); !strings.HasPrefix(got, want) {
			t.Errorf("leaks --group-by %s: got %s, want %s", by, got, want)
		}
		apiReport, err := api.Run(tl, query.Options{GroupBy: by})
		if err != nil {
			t.Fatal(err)
		}
		got := analyzetest.ColumnTexts(t, apiReport, "api", by)
		slices.Sort(got)
		values := analyzetest.ColumnTexts(t, leakReport, "leaks", by)
		slices.Sort(values)
		if got = slices.Compact(got); !slices.Equal(got, values) {
			t.Errorf("api --group-by %s: got %v, want %v", by, got, values)
		}
	}
}

func TestRanksOfSeveralJobsHaveTheirJob(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.FourRanksRecording(t)
	recording.AddIdentity(42, analyzetest.RankIdentity(0, 2, "a"), nil)
	recording.AddIdentity(43, analyzetest.RankIdentity(0, 2, "b"), nil)
	recording.AddIdentity(44, analyzetest.RankIdentity(0, 2, ""), nil)
	apiReport, err := api.Run(recording.Timeline(), query.Options{GroupBy: "rank"})
	if err != nil {
		t.Fatal(err)
	}
	got := analyzetest.ColumnTexts(t, apiReport, "api", "rank")
	slices.Sort(got)
	if want := []string{"(no rank)", "0", "0 of a", "0 of b"}; !slices.Equal(slices.Compact(got), want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestProcessesAreChosenByIdentity(t *testing.T) {
	testclass.Unit(t)
	tl := cluster(t).Timeline()
	container := strings.Repeat("0123456789abcdef", 4)
	for name, c := range map[string]struct {
		filter query.Filter
		by     timeline.ProcessFilter
		want   string // sum of the live bytes of the selected processes
	}{
		"all":    {by: timeline.ProcessFilter{}, want: "110 <nil>"},
		"a rank": {by: timeline.ProcessFilter{Ranks: []int32{1}}, want: "2 <nil>"},
		"ranks":  {by: timeline.ProcessFilter{Ranks: []int32{0, 3, 9}}, want: "5 <nil>"},
		"another rank": {by: timeline.ProcessFilter{Ranks: []int32{9, 8}}, want: "0 no row matches --rank 9,8; " +
			"the recording has ranks 0, 1, 2, 3"},
		"job":       {by: timeline.ProcessFilter{Jobs: []string{"demo"}}, want: "10 <nil>"},
		"Slurm job": {by: timeline.ProcessFilter{Jobs: []string{"77"}}, want: "10 <nil>"},
		"another job": {by: timeline.ProcessFilter{Jobs: []string{"dem", ""}}, want: "0 no row matches --job " +
			"dem,; the recording has jobs demo"},
		"container prefix":   {by: timeline.ProcessFilter{Containers: []string{container[:12]}}, want: "3 <nil>"},
		"whole container id": {by: timeline.ProcessFilter{Containers: []string{strings.ToUpper(container)}}, want: "3 <nil>"},
		"unknown container": {by: timeline.ProcessFilter{Containers: []string{"", "ff"}}, want: "0 no row matches " +
			"--container ,ff; the recording has containers 0123456789ab, 1123456789ab"},
		"rank and pid":    {query.Filter{Pids: []int32{42, 43}}, timeline.ProcessFilter{Ranks: []int32{1, 2}}, "2 <nil>"},
		"rank, other pid": {query.Filter{Pids: []int32{42}}, timeline.ProcessFilter{Ranks: []int32{1}}, "0 no row matches all filters; use fewer filters"},
		"rank, no pid":    {query.Filter{Pids: []int32{7}}, timeline.ProcessFilter{Ranks: []int32{1}}, "0 no row matches --pid 7; the recording has pids 42, 43, 44, 45, 50"},
		"rank and job":    {by: timeline.ProcessFilter{Ranks: []int32{1}, Jobs: []string{"other"}}, want: "0 no row matches --job other; the recording has jobs demo"},
	} {
		opt := query.Options{Filter: c.filter}
		tl.RestrictProcesses(&opt.Filter, c.by)
		tl.RestrictProcesses(&opt.Filter, c.by) // restricting twice has no effect
		r, err := leaks.Run(tl, opt)
		if err != nil {
			t.Fatal(err)
		}
		live, _, _ := r.FindNumber("live_bytes")
		none := "<nil>"
		if r.NoMatch != nil {
			none = r.NoMatch.Error()
		}
		if got := fmt.Sprintf("%d %s", int64(live)/analyzetest.Mib, none); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}

func TestRestrictReplacesTheEarlierRestriction(t *testing.T) {
	testclass.Unit(t)
	first, second := analyzetest.FourRanksRecording(t), analyzetest.FourRanksRecording(t)
	first.AddIdentity(42, analyzetest.RankIdentity(1, 2, "a"), nil)
	second.AddIdentity(45, analyzetest.RankIdentity(1, 2, "b"), nil)
	f := query.Filter{Pids: []int32{42, 45}}
	for recording, want := range map[*analyzetest.TestRecording]int32{first: 42, second: 45} {
		if recording.Timeline().
			RestrictProcesses(&f, timeline.ProcessFilter{Ranks: []int32{1}}); !slices.Equal(
			f.Pids,
			[]int32{want},
		) {
			t.Errorf("got %v, want %d", f.Pids, want)
		}
	}
	if first.Timeline().
		RestrictProcesses(&f, timeline.ProcessFilter{}); !slices.Equal(f.Pids, []int32{42, 45}) ||
		f.Choice != nil {
		t.Errorf("got %v", f.Pids)
	}
}

// allReports returns the reports of a recording by name.
func allReports(tl *timeline.Timeline) map[string]func(query.Options) (*report.Report, error) {
	reports := make(map[string]func(query.Options) (*report.Report, error))
	for _, r := range analyze.Reports {
		reports[r.Name] = func(o query.Options) (*report.Report, error) { return r.Run(tl, o) }
	}
	return reports
}

// TestTablesWithProcessesHaveTheirRank compares reports on recordings with and without ranks. Only
// the column of the ranks may differ.
func TestTablesWithProcessesHaveTheirRank(t *testing.T) {
	testclass.Unit(t)
	tables := make(map[string]bool)
	for name, make := range recordings {
		bare, ranked := make(t), make(t)
		for _, r := range ranked.Rows {
			if r.Kind == format.KindProcess {
				ranked.AddIdentity(
					r.Pid,
					format.Identity{
						Rank:    analyzetest.PointerTo(90_000 + int(r.Pid)),
						Sources: map[string]string{"rank": "env RANK"},
					},
					nil,
				)
			}
		}
		bareReports, rankedReports := allReports(bare.Timeline()), allReports(ranked.Timeline())
		for command := range bareReports {
			if command == "ranks" { // its rows are ranks
				continue
			}
			before, after := reportJSON(t, bareReports[command]), reportJSON(t, rankedReports[command])
			delete(after, "identities")
			for _, o := range []map[string]any{before, after} { // two ranks make the rule straggler checkable
				if facts, ok := o["facts"].(map[string]any); ok && command == "rules" {
					delete(facts, "straggler")
					delete(facts, "rules_checked")
				}
			}
			if command == "summary" {
				delete(after, "processes")
			}
			for table, rows := range after {
				if takeRanks(t, name+" "+command+" "+table, rows) {
					tables[command+" "+table] = true
				}
			}
			want := strings.ReplaceAll(fmt.Sprint(before), bare.Path, "run.parquet")
			got := withoutRanks(strings.ReplaceAll(fmt.Sprint(after), ranked.Path, "run.parquet"))
			if got != want {
				at := 0
				for at < min(len(got), len(want)) && got[at] == want[at] {
					at++
				}
				t.Errorf(
					"%s of %s: with ranks …%.200s, without …%.200s",
					command,
					name,
					got[max(0, at-60):],
					want[max(0, at-60):],
				)
			}
		}
	}
	if len(tables) < 20 {
		t.Errorf("only %d tables have ranks: %v", len(tables), slices.Sorted(maps.Keys(tables)))
	}
}

func reportJSON(t *testing.T, make func(query.Options) (*report.Report, error)) (o map[string]any) {
	t.Helper()
	r, err := make(query.Options{Top: 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(analyzetest.RenderReport(t, r, render.Options{Format: "json"}), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// takeRanks deletes the ranks from rows that have a pid. It reports whether there were any.
func takeRanks(t *testing.T, where string, rows any) (found bool) {
	list, _ := rows.([]any)
	for _, row := range list {
		o, _ := row.(map[string]any)
		pid, ok := o["pid"]
		if !ok {
			continue
		}
		rank, ok := o["rank"]
		if n, isNumber := pid.(float64); !ok || isNumber && rank != nil && rank != 90_000+n {
			t.Errorf("%s: rank of %v is %v", where, pid, rank)
		}
		found = true
		delete(o, "rank")
	}
	return found
}

// withoutRanks removes the ranks from labels of processes.
func withoutRanks(text string) string {
	for {
		before, after, ok := strings.Cut(text, " rank 90")
		if !ok {
			return text
		}
		text = before + strings.TrimLeft(after, "0123456789")
	}
}

func TestRowsCanBeSortedByRank(t *testing.T) {
	testclass.Unit(t)
	r, err := hang.RunWithOptions(cluster(t).Timeline(), hang.Options{Options: query.Options{Sort: "rank"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(analyzetest.ColumnTexts(t, r, "threads", "rank")); got != "[3 2 1 0 <nil>]" {
		t.Error(got)
	}
}

func TestIdentitiesOfDamagedRecordings(t *testing.T) {
	testclass.Unit(t)
	for _, message := range []string{
		`{"exe":"/app/train","exit_ns":1790000059000000000,"identity":{"rank":"one"}}`,
		`{"exe":"/app/train","exit_ns":1790000059000000000,"identity":[1,2]}`,
		`{"exe":"/app/train","exit_ns":1790000059000000000,"identity":{"rank":-5,"sources":{"rank":"env RANK"}}}`,
		`{"exe":"/app/train","exit_ns":1790000059000000000,"identity":{"rank":9000000000,"sources":{"rank":"env RANK"}}}`,
	} {
		recording := analyzetest.NewTestRecording(t)
		recording.AddRow(
			format.Row{
				Kind:    format.KindProcess,
				Name:    "train",
				Pid:     42,
				StartNs: analyzetest.Epoch,
				Device:  -1,
				Message: message,
			},
		)
		p := recording.Timeline().Facts.Processes[42]
		if p.Exe != "/app/train" || p.ExitNs == 0 || p.Identity.Known() {
			t.Errorf("%s: %+v", message, p)
		}
	}
	recording := analyzetest.FourRanksRecording(t)
	for i, name := range analyzetest.HostileNames {
		text := func(s string) string { return name + s }
		recording.AddRow(
			format.Row{
				Kind:    format.KindProcess,
				Name:    name,
				Pid:     int32(100 + i),
				StartNs: analyzetest.Epoch,
				Device:  -1,
			},
		)
		recording.AddIdentity(
			int32(100+i),
			format.Identity{
				Rank:      analyzetest.PointerTo(i),
				Job:       name,
				Pod:       text("p"),
				Node:      text("n"),
				Namespace: name,
				Sources:   map[string]string{name: name},
			},
			map[string]any{"container_id": name, "cgroup": "0::" + name},
		)
	}
	tl := recording.Timeline()
	for _, make := range allReports(tl) {
		r, err := make(query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CheckSafeToPrint(t, r)
	}
	var page bytes.Buffer
	if _, err := html.WritePage(tl, &page, html.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"<script>alert", "<img", "<!--", "\x1b", "\u202e"} {
		if strings.Contains(page.String(), bad) {
			t.Errorf("the page has %q", bad)
		}
	}
}

func TestTheLastExecSetsTheIdentity(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	add := func(name, message string) {
		recording.AddRow(
			format.Row{
				Kind:    format.KindProcess,
				Name:    name,
				Pid:     42,
				StartNs: analyzetest.Epoch,
				Device:  -1,
				Message: message,
			},
		)
	}
	rank := func() string { return recording.Timeline().PidLabel(42) }
	add("sh", `{"exe":"/bin/sh","identity":{"rank":1,"sources":{"rank":"env SLURM_PROCID"}}}`)
	add("train", `{"exe":"/app/train","identity":{"rank":8,"sources":{"rank":"env RANK"}}}`)
	add("", `{"exit_ns":1790000059000000000}`)
	if got := rank(); got != "42 train rank 8" {
		t.Error(got)
	}
	add("other", `{"exe":"/app/other"}`)
	if got := rank(); got != "42 other" {
		t.Error(got)
	}
}

func TestPageAndTraceNameRanks(t *testing.T) {
	testclass.Unit(t)
	tl := cluster(t).Timeline()
	var page bytes.Buffer
	if _, err := html.WritePage(tl, &page, html.Options{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"42 train rank 0, 43 train rank 1", `<section id="processes"`, "research/train-1", "1123456789ab"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	var trace bytes.Buffer
	if _, err := perfetto.WriteTrace(tl, &trace, perfetto.Options{}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(trace.Bytes(), []byte("train rank 3")) {
		t.Error("the trace lacks the rank")
	}
	p, _, _, err := pprof.BuildProfile(tl, pprof.Options{Type: "launches", RootBy: "rank"})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(p.String(), "rank 2") {
		t.Error("the profile lacks the rank")
	}
}

func TestProcessesAreListedWhereTheyDiffer(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		messages []string
		want     int
	}{
		"one process":          {[]string{`{"cgroup":"0::/a"}`}, 0},
		"two in one cgroup":    {[]string{`{"cgroup":"0::/a"}`, `{"cgroup":"0::/a"}`}, 0},
		"in different cgroups": {[]string{`{"cgroup":"0::/a"}`, `{"cgroup":"0::/b"}`}, 2},
		"in a container":       {[]string{`{"container_id":"0123"}`}, 1},
		"with an identity":     {[]string{`{"identity":{"job":"x","sources":{"job":"cgroup"}}}`, `{}`}, 2},
	} {
		recording := analyzetest.NewTestRecording(t)
		for i, m := range c.messages {
			recording.AddRow(
				format.Row{
					Kind:    format.KindProcess,
					Name:    "train",
					Pid:     int32(42 + i),
					StartNs: analyzetest.Epoch,
					Device:  -1,
					Message: m,
				},
			)
		}
		if table := processes.NewProcessTable(recording.Timeline(), new(query.Filter)); len(table.Rows) != c.want {
			t.Errorf("%s: %d rows, want %d", name, len(table.Rows), c.want)
		}
	}
}

package sql

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// newSource opens a recording as a source with the name of its file.
func newSource(t *testing.T, path string) *Source {
	t.Helper()
	s, err := NewSource(path, analyzetest.OpenRecording(t, path))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// queryViews creates the views over the sources, limits DuckDB to their files, and runs queries. It
// decodes the result of each query into rows.
func queryViews(t *testing.T, sources []*Source, queries ...string) [][]map[string]any {
	t.Helper()
	var script strings.Builder
	if err := WriteViews(&script, sources); err != nil {
		t.Fatal(err)
	}
	if err := WriteLimits(&script, sources, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	var results [][]map[string]any
	for _, line := range viewers.QueryDuckDB(t, append([]string{script.String()}, queries...)...)[1:] {
		var rows []map[string]any
		if err := json.Unmarshal([]byte(line), &rows); err != nil {
			t.Fatal(err)
		}
		results = append(results, rows)
	}
	return results
}

// queryOne returns the result of a query for one row of text cells.
func queryOne(t *testing.T, sources []*Source, query string) map[string]any {
	t.Helper()
	rows := queryViews(t, sources, query)[0]
	if len(rows) != 1 {
		t.Fatalf("%d rows of %s", len(rows), query)
	}
	return rows[0]
}

// recordings are recordings of all kinds of rows, by name.
func recordings(t *testing.T) map[string]*analyzetest.TestRecording {
	random := analyzetest.TrainingRecording(t)
	analyzetest.AddRandomProgram(random, rand.New(rand.NewPCG(5, 5)), 2000)
	torch, _ := analyzetest.TorchTrainingRecording(t, analyzetest.TorchConf{}, 0)
	hostile := analyzetest.HostileRecording(t)
	for _, r := range hostile.Rows { // DuckDB reads no file with invalid UTF-8
		for _, text := range []*string{&r.Name, &r.Message, &r.Site, &r.MemoryKind, &r.StackStatus, &r.Kernel, &r.Stack} {
			*text = strings.ToValidUTF8(*text, "?")
		}
		for i := range r.Frames {
			r.Frames[i].Func, r.Frames[i].SystemName = "evil'\x1b", "evil\n"
		}
	}
	return map[string]*analyzetest.TestRecording{
		"random": random, "torch": torch,
		"kinds":    analyzetest.AllMemoryKindsRecording(t),
		"workload": analyzetest.WorkloadRecording(t),
		"gpus":     analyzetest.TwoGPURecording(t),
		"ranks":    analyzetest.FourRanksRecording(t),
		"host":     analyzetest.HostRecording(t),
		"hostile":  hostile,
		"crash":    analyzetest.CrashingRecording(t),
	}
}

// TestViewColumns compares the columns of every view with their descriptions. It also reads every row.
func TestViewColumns(t *testing.T) {
	testclass.Browser(t)
	for name, recording := range recordings(t) {
		recording.WriteAndOpen()
		var queries []string
		for _, v := range Views {
			queries = append(queries,
				"select column_name from (describe "+v.Name+")", "select count(columns(*)) from "+v.Name)
		}
		results := queryViews(t, []*Source{newSource(t, recording.Path)}, queries...)
		for i, v := range Views {
			var got, want []string
			for _, row := range results[2*i] {
				got = append(got, fmt.Sprint(row["column_name"]))
			}
			for _, c := range v.Columns {
				want = append(want, c.Key)
			}
			if v.Columns == nil {
				want = []string{"recording"}
				for _, c := range rowColumns {
					want = append(want, c.name)
				}
			}
			if strings.Join(got, " ") != strings.Join(want, " ") {
				t.Errorf("%s: view %s has the columns\n%q, want\n%q", name, v.Name, got, want)
			}
		}
	}
}

// TestViewsHaveAllRows compares the number of rows in each view with the rows that were written.
func TestViewsHaveAllRows(t *testing.T) {
	testclass.Browser(t)
	for name, recording := range recordings(t) {
		recording.WriteAndOpen()
		want := make(map[string]int)
		for _, r := range recording.Rows {
			want["recording_rows"]++
			switch class := format.ClassOf(r.Kind); {
			case class == format.ClassMemory || class == format.ClassCall:
				want["calls"]++
			case class == format.ClassAllocator && (r.Name == "alloc" || r.Name == "reported_alloc"):
				want["blocks"]++
			}
			switch r.Kind {
			case format.KindLaunch:
				want["launches"]++
			case format.KindNVML, format.KindHost:
				want["samples"]++
			case format.KindCollective:
				want["collectives"]++
			case format.KindNote, format.KindLost:
				want["notes"]++
			case format.KindXid:
				want["xids"]++
			case format.KindStack:
				want["stacks"] += len(r.Frames)
			}
		}
		views := []string{
			"recording_rows", "calls", "blocks", "launches", "samples", "collectives", "notes", "xids", "stacks",
		}
		var counts []string
		for _, view := range views {
			counts = append(counts, "(select count(*) from "+view+")::integer as "+view)
		}
		row := queryOne(t, []*Source{newSource(t, recording.Path)}, "select "+strings.Join(counts, ", "))
		for _, view := range views {
			if row[view] != float64(want[view]) {
				t.Errorf("%s: view %s has %v rows, want %d", name, view, row[view], want[view])
			}
		}
	}
}

// TestAllocationsAreTheReplay compares the allocations with those of the replay in Go: how many there
// were, how many ended, and every block that lives at the end.
func TestAllocationsAreTheReplay(t *testing.T) {
	testclass.Browser(t)
	for name, recording := range recordings(t) {
		tl := recording.Timeline()
		counts := make(map[livemem.ChangeKind]int)
		var bytes int64
		live, err := tl.ReplayMemory(func(_ *livemem.Set, c *livemem.Change) {
			counts[c.Kind]++
			if c.Kind == livemem.ChangeAllocated {
				bytes += c.Block.Bytes
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		var liveBytes, blocks int64
		live.EachBlock(func(_ int64, b livemem.Block) { liveBytes, blocks = liveBytes+b.Bytes, blocks+1 })
		want := fmt.Sprintf(
			"%d allocations, %d bytes, %d freed, %d reused, %d ended with the process; %d blocks live, %d bytes",
			counts[livemem.ChangeAllocated],
			bytes,
			counts[livemem.ChangeFreed],
			counts[livemem.ChangeFreeLost],
			counts[livemem.ChangeFreedByExit]+counts[livemem.ChangeFreedWithContext],
			blocks,
			liveBytes,
		)
		got := queryOne(t, []*Source{newSource(t, recording.Path)}, `select printf(
			'%d allocations, %s bytes, %d freed, %d reused, %d ended with the process; %d blocks live, %s bytes',
			count(*), coalesce(sum(bytes), 0)::varchar, count(*) filter (end_by = 'free'),
			count(*) filter (end_by = 'reuse'), count(*) filter (end_by = 'exit'),
			count(*) filter (free_ns is null), coalesce(sum(bytes) filter (free_ns is null), 0)::varchar) as text
			from allocations`)["text"]
		if got != want {
			t.Errorf("%s: the view has\n%s, want\n%s", name, got, want)
		}
	}
}

// TestOldRecording reads a recording of version 1.0, which lacks columns, together with a new one.
func TestOldRecording(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.TrainingRecording(t)
	recording.WriteAndOpen()
	old := analyzetest.RepositoryPath(t, "format", "testdata", "v1.0.parquet")
	rec := analyzetest.OpenRecording(t, old)
	want := make(map[string]int)
	for c := format.ClassFact; c <= format.ClassBlock; c++ {
		if err := rec.Rows(func(*format.Row) error { want[c.String()]++; return nil }, c); err != nil {
			t.Fatal(err)
		}
	}
	results := queryViews(t, []*Source{newSource(t, old), newSource(t, recording.Path)},
		"select class, count(*)::integer as n from recording_rows where recording = '"+old+"' group by class",
		"select count(distinct recording)::integer as n from calls")
	got := make(map[string]int)
	for _, row := range results[0] {
		got[row["class"].(string)] = int(row["n"].(float64))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("rows by class %v, want %v", got, want)
	}
	if results[1][0]["n"] != 2.0 {
		t.Errorf("calls of %v recordings", results[1])
	}
}

// TestRingFolder reads the segments of an unfinished ring, and resolves rationed stacks.
func TestRingFolder(t *testing.T) {
	testclass.Browser(t)
	path := filepath.Join(t.TempDir(), "ring.parquet")
	w, err := format.Create(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	launches := 0
	for segment := range 4 {
		rows := make([]format.Row, 50)
		for i := range rows {
			rows[i] = format.Row{
				Kind: format.KindLaunch, Name: "cuLaunchKernel", Pid: 42, Tid: 42, StackID: 9,
				StackStatus: format.StackRationed, StartNs: analyzetest.Epoch + int64(1000*segment+i),
			}
		}
		launches += len(rows)
		must := errors.Join(w.Write(format.ClassCall, rows), w.Write(format.ClassStack, []format.Row{
			{Kind: format.KindStackAlias, StackID: 9, Value: 3, Site: "step", StartNs: analyzetest.Epoch},
		}), w.Rotate(format.Meta{StartNs: analyzetest.Epoch, EndNs: analyzetest.Epoch + 5000}))
		if must != nil {
			t.Fatal(must)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	source := newSource(t, w.Dir())
	if len(source.Files) != 8 {
		t.Errorf("files %q", source.Files)
	}
	row := queryOne(
		t,
		[]*Source{source},
		"select count(*)::integer as n, any_value(stack_id) as id, any_value(stack_status) as status, site from launches group by site",
	)
	if row["n"] != float64(launches) || row["id"] != 3.0 || row["status"] != "inferred" || row["site"] != "step" {
		t.Errorf("%v, want %d launches of stack 3", row, launches)
	}
}

// FuzzQuoteText checks that a literal has no second quote that could end it, and no line break.
func FuzzQuoteText(f *testing.F) {
	for _, s := range append(analyzetest.HostileNames, "", "'", "''", `\'`, "a' || 'b", "\n", analyzetest.HostileName) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		quoted, err := QuoteText(text)
		if err != nil {
			if utf8.ValidString(text) && !strings.Contains(text, "\x00") {
				t.Fatal(err)
			}
			return
		}
		var decoded strings.Builder
		rest := quoted
		for rest != "" {
			literal := regexp.MustCompile(`^'((?:[^']|'')*)'`).FindStringSubmatch(rest)
			if literal == nil {
				t.Fatalf("%q is no literal of %q", quoted, text)
			}
			decoded.WriteString(strings.ReplaceAll(literal[1], "''", "'"))
			rest = rest[len(literal[0]):]
			if number := regexp.MustCompile(`^ \|\| chr\((\d+)\) \|\| `).FindStringSubmatch(rest); number != nil {
				c, _ := strconv.Atoi(number[1])
				decoded.WriteRune(rune(c))
				rest = rest[len(number[0]):]
			}
		}
		if decoded.String() != text || strings.ContainsAny(quoted, "\n\r\x1b") {
			t.Errorf("%q of %q means %q", quoted, text, decoded.String())
		}
	})
}

// TestDuckDBReadsLiterals compares the values that DuckDB gives literals with the texts.
func TestDuckDBReadsLiterals(t *testing.T) {
	testclass.Browser(t)
	texts := []string{"", "'", `\`, "a'b''c", "\n'\x1b\u202e", "🚀", "--", "/*", "$1", "E'\\n'", "{a}", ";\n.quit\n"}
	r, alphabet := rand.New(rand.NewPCG(1, 2)), []rune("'\\\"\n\r\t;-$ aä\u009b\u2028%_*?[]|")
	for range 300 {
		var b strings.Builder
		for range r.IntN(12) {
			b.WriteRune(alphabet[r.IntN(len(alphabet))])
		}
		texts = append(texts, b.String())
	}
	var literals []string
	for _, text := range texts {
		q, err := QuoteText(text)
		if err != nil {
			t.Fatal(err)
		}
		literals = append(literals, "("+q+")")
	}
	var rows []struct{ V string }
	result := viewers.QueryDuckDB(t, "select v from (values "+strings.Join(literals, ", ")+") t (v)")
	if err := json.Unmarshal([]byte(result[0]), &rows); err != nil || len(rows) != len(texts) {
		t.Fatal(err, len(rows))
	}
	for i, row := range rows {
		if row.V != texts[i] {
			t.Errorf("%s is %q, want %q", literals[i], row.V, texts[i])
		}
	}
}

// TestSteps compares the view with the steps that the model finds.
func TestSteps(t *testing.T) {
	testclass.Browser(t)
	recording := analyzetest.NewTestRecording(t)
	for i := range int64(400) {
		recording.AddLaunch(i*analyzetest.Ms, 1000, fmt.Sprintf("kernel%d", i%4), 7, 0)
	}
	steps, err := FindSteps(recording.Timeline())
	if err != nil || len(steps) < 90 {
		t.Fatal(err, len(steps))
	}
	source := newSource(t, recording.Path)
	source.Steps = steps
	row := queryOne(t, []*Source{source}, `select count(*)::integer as n, sum(operations)::integer as operations,
		max(step)::integer as last, sum(dur_ns)::varchar as ns from steps`)
	var operations, ns int64
	for i := range steps {
		operations, ns = operations+int64(steps[i].Operations), ns+steps[i].EndNs-steps[i].StartNs
	}
	want := fmt.Sprint(
		map[string]any{"n": len(steps), "operations": operations, "last": len(steps), "ns": fmt.Sprint(ns)},
	)
	if fmt.Sprint(row) != want {
		t.Errorf("%v, want %v", row, want)
	}
}

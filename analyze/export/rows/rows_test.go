package rows

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func export(t *testing.T, tl *timeline.Timeline, opt Options) (string, *Stats) {
	t.Helper()
	var out bytes.Buffer
	stats, err := WriteRows(tl, &out, opt)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), stats
}

// smallRecording has a row of every common class, and texts that need quotes.
func smallRecording(t *testing.T) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "=cmd()", Pid: 42, StartNs: analyzetest.Epoch, Device: -1},
	)
	recording.AddStack(1, "step", "main")
	analyzetest.SetStackAndSite(recording.AddAlloc(5, 1000, 0x1000, 64), 1, `step, "inner"`)
	recording.AddAlloc(10, 1000, 0x2000, 1<<40)
	recording.AddLaunch(1e9, 1000, "axpy<float>\n", 7, 1).Pid = 77
	recording.AddNVMLSample(0, 2e9, "power_milliwatts", 0.5)
	return recording
}

func TestGolden(t *testing.T) {
	testclass.Unit(t)
	tl := smallRecording(t).Timeline()
	for name, opt := range map[string]Options{
		"all.csv":        {Format: CSV},
		"all.jsonl":      {Format: JSONL, Stacks: true},
		"columns.csv":    {Format: CSV, Columns: []string{"time", "bytes", "site", "stack", "value"}, Stacks: true},
		"columns.jsonl":  {Format: JSONL, Columns: []string{"kind", "pid", "kernel"}, Kinds: []string{"launch", "alloc"}},
		"noheader.csv":   {Format: CSV, NoHeader: true, Classes: []string{"fact"}},
		"memory.jsonl":   {Format: JSONL, Classes: []string{"memory"}},
		"unknown.jsonl":  {Format: JSONL, Kinds: []string{"no kind"}},
		"callheader.csv": {Format: CSV, Kinds: []string{"no kind"}, Columns: []string{"ptr"}},
	} {
		out, _ := export(t, tl, opt)
		analyzetest.CompareGolden(t, name, []byte(out))
	}
}

// TestRowsAreComplete reads the output of both formats and compares each row with the recording.
func TestRowsAreComplete(t *testing.T) {
	testclass.Unit(t)
	for name, recording := range map[string]*analyzetest.TestRecording{
		"training": analyzetest.TrainingRecording(t), "hostile": analyzetest.HostileRecording(t),
		"host": analyzetest.HostRecording(t), "ranks": analyzetest.FourRanksRecording(t),
	} {
		tl := recording.Timeline()
		key := func(kind, name, site string, start, ptr int64) string {
			return strings.ToValidUTF8(fmt.Sprintf("%s %q %q %d %d", kind, strings.ToValidUTF8(name, "\ufffd"),
				strings.ToValidUTF8(site, "\ufffd"), start, ptr), "\ufffd")
		}
		want := make(map[string]int)
		for _, r := range recording.Rows {
			want[key(r.Kind, r.Name, r.Site, r.StartNs, r.Ptr)]++
		}
		columns := []string{"kind", "name", "site", "start_ns", "ptr"}
		text, stats := export(t, tl, Options{Format: JSONL, Columns: columns})
		got := make(map[string]int)
		for line := range strings.Lines(text) {
			var r struct {
				Kind, Name, Site string
				StartNs          int64 `json:"start_ns"`
				Ptr              int64
			}
			if err := json.Unmarshal([]byte(line), &r); err != nil {
				t.Fatal(err, line)
			}
			got[key(r.Kind, r.Name, r.Site, r.StartNs, r.Ptr)]++
		}
		if stats.Rows != int64(len(recording.Rows)) || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %d rows of %d, or other values", name, stats.Rows, len(recording.Rows))
		}
		text, _ = export(t, tl, Options{Format: CSV})
		lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
		if err != nil || len(lines) != len(recording.Rows)+1 || len(lines[0]) != len(ListColumns()) {
			t.Errorf("%s: %d lines of CSV for %d rows, %v", name, len(lines), len(recording.Rows), err)
		}
	}
}

func TestFilter(t *testing.T) {
	testclass.Unit(t)
	tl := smallRecording(t).Timeline()
	for want, opt := range map[string]Options{
		"process stack nvml alloc alloc": func() (o Options) { o.Pids = []int32{42}; return o }(),
		"process stack alloc":            func() (o Options) { o.ToNs = analyzetest.Epoch + 5; return o }(),
		"process stack nvml launch":      func() (o Options) { o.FromNs = analyzetest.Epoch + 1e9; return o }(),
		"alloc launch":                   func() (o Options) { o.MinBytes = 65; o.Classes = []string{"memory", "call"}; return o }(),
		"launch":                         {Kinds: []string{"launch", "sync"}},
	} {
		opt.Format, opt.Columns, opt.NoHeader = CSV, []string{"kind"}, true
		text, _ := export(t, tl, opt)
		if got := strings.Join(strings.Fields(text), " "); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	opt := Options{}
	opt.Pids = []int32{1}
	opt.Classes = []string{"call"}
	if _, stats := export(t, tl, opt); stats.NoMatch == nil || stats.NoMatch.Filter != "pid" {
		t.Errorf("no process: %+v", stats)
	}
	for _, wrong := range []Options{{Columns: []string{"frames"}}, {Classes: []string{"calls"}}} {
		if _, err := WriteRows(tl, new(bytes.Buffer), wrong); err == nil {
			t.Errorf("no error for %+v", wrong)
		}
	}
}

// FuzzText checks that texts of any bytes survive both formats.
func FuzzText(f *testing.F) {
	for _, s := range append(analyzetest.HostileNames, "", " a", "a,b", `"`, "\r\n", "=1+1", analyzetest.HostileName, "🚀") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		valid := strings.ToValidUTF8(s, "\ufffd")
		var decoded string
		encoded := JSONL.appendText(nil, s)
		if err := json.Unmarshal(encoded, &decoded); err != nil || decoded != valid || !utf8.Valid(encoded) {
			t.Errorf("JSON of %q: %s, %q, %v", s, encoded, decoded, err)
		}
		if strings.ContainsAny(string(encoded), "\n\r\x1b\u009b\u2028\u202e") {
			t.Errorf("JSON of %q has control characters: %q", s, encoded)
		}
		line := append(CSV.appendText([]byte("a,"), s), ",b\r\n"...)
		cells, err := csv.NewReader(bytes.NewReader(line)).ReadAll()
		if err != nil || len(cells) != 1 || len(cells[0]) != 3 {
			t.Fatalf("CSV of %q: %q, %v", s, line, err)
		}
		want := strings.ReplaceAll(valid, "\r\n", "\n") // csv.Reader does the same
		if cell := cells[0][1]; cell != want && cell != "'"+want {
			t.Errorf("CSV of %q: %q", s, cell)
		}
	})
}

// BenchmarkCSV writes a million rows with all columns.
func BenchmarkCSV(b *testing.B) {
	path := analyzetest.BenchRecordingPath(b, 1_000_000)
	tl, err := timeline.Open(analyzetest.OpenRecording(b, path))
	if err != nil {
		b.Fatal(err)
	}
	for name, opt := range map[string]Options{
		"all": {Format: CSV}, "jsonl": {Format: JSONL}, "five": {Format: CSV, Columns: []string{"time", "name", "pid", "bytes", "site"}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := WriteRows(tl, io.Discard, opt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

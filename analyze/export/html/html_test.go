package html

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func pageText(t *testing.T, tl *timeline.Timeline, opt Options) string {
	t.Helper()
	var page bytes.Buffer
	if _, err := WritePage(tl, &page, opt); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// chartDataOf returns the data of a page's charts, decoded from the JSON in the page.
func chartDataOf(t *testing.T, page string) map[string]any {
	t.Helper()
	_, after, ok := strings.Cut(page, `<script type="application/json" id="data">`)
	text, _, end := strings.Cut(after, "</script>")
	if !ok || !end {
		t.Fatal("the page has no data")
	}
	var data map[string]any
	if err := json.Unmarshal([]byte(text), &data); err != nil {
		t.Fatal(err)
	}
	return data
}

// TestMomentsKeepExtremes compares the states that momentScan keeps with the live memory after each
// call: every bucket's maximum and minimum must be exact.
func TestMomentsKeepExtremes(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(3, 3))
	for range 20 {
		recording := analyzetest.NewTestRecording(t)
		type state struct{ atNs, total int64 }
		states := []state{{recording.Meta.StartNs, 0}}
		var live [][2]int64
		next, at, total := int64(1<<40), int64(0), int64(0)
		for range 3000 {
			at += 1 + r.Int64N(20*analyzetest.Ms)
			if r.IntN(40) == 0 {
				at += r.Int64N(3 * analyzetest.Second) // some buckets have no changes
			}
			if at >= 59*analyzetest.Second {
				break
			}
			if len(live) > 0 && r.IntN(100) < 45 {
				k := r.IntN(len(live))
				recording.AddFree(at, 0, live[k][0])
				total -= live[k][1]
				live = slices.Delete(live, k, k+1)
			} else {
				next += 1 << 30
				b := 1 + r.Int64N(1<<20)
				recording.AddAlloc(at, 0, next, b).Site = fmt.Sprint("site", r.IntN(30))
				live, total = append(live, [2]int64{next, b}), total+b
			}
			states = append(states, state{analyzetest.Epoch + at, total})
		}
		tl := recording.Timeline()
		scan := newMomentScan(tl, &query.Filter{})
		if _, err := tl.ReplayProgram(scan.consumeChange, nil, nil); err != nil {
			t.Fatal(err)
		}
		scan.finishSeries()
		s := scan.devices[0]
		stateAt := func(ns int64) int64 {
			i, found := slices.BinarySearchFunc(states, ns, func(s state, ns int64) int { return int(s.atNs - ns) })
			if !found {
				i--
			}
			return states[i].total
		}
		kept := make(map[int64]bool)
		for i, m := range s.list {
			if i > 0 && m.atNs < s.list[i-1].atNs {
				t.Fatal("the states are not in order of time")
			}
			sum := m.rest.bytes
			for _, h := range m.holders {
				sum += h.bytes
			}
			if want := stateAt(m.atNs); m.total != want || sum != want {
				t.Fatalf("at %d: %d, holders %d, want %d", m.atNs, m.total, sum, want)
			}
			kept[int64(s.bucketAt(m.atNs))<<48|m.total] = true
		}
		most, least := make(map[int]int64), make(map[int]int64)
		for _, st := range states[1:] {
			b := s.bucketAt(st.atNs)
			if _, ok := most[b]; !ok {
				before := stateAt(max(s.bucketStartNs(b), analyzetest.Epoch))
				most[b], least[b] = before, before
			}
			most[b], least[b] = max(most[b], st.total), min(least[b], st.total)
		}
		for b := range most {
			if !kept[int64(b)<<48|most[b]] || !kept[int64(b)<<48|least[b]] {
				t.Fatalf("part %d: the maximum %d or the minimum %d is not among the states", b, most[b], least[b])
			}
		}
		// A curve keeps its value until the next point, so the value must be right at the end of an
		// idle stretch.
		for i, m := range s.list[:len(s.list)-1] {
			if gap := s.list[i+1].atNs - 1; s.bucketAt(gap) > s.bucketAt(m.atNs)+1 &&
				stateAt(s.bucketStartNs(s.bucketAt(gap))) != m.total {
				t.Fatalf(
					"after %d the curve stays at %d, but %d is live",
					m.atNs,
					m.total,
					stateAt(s.bucketStartNs(s.bucketAt(gap))),
				)
			}
		}
		if peak := s.peak.copyState(); peak.total != slices.MaxFunc(
			states,
			func(a, b state) int { return int(a.total - b.total) },
		).total {
			t.Fatalf("peak %d", peak.total)
		}
	}
}

func TestCurveKeepsExtremes(t *testing.T) {
	testclass.Unit(t)
	c := newValueCurve(query.Window{FromNs: 0, ToNs: 1000 * analyzetest.Second})
	r := rand.New(rand.NewPCG(1, 2))
	most, least := make(map[int]float64), make(map[int]float64)
	for at := int64(0); at < 1000*analyzetest.Second; at += 50 * analyzetest.Ms {
		v := r.NormFloat64()
		c.addValue(at, v)
		b := c.bucketAt(at)
		if _, ok := most[b]; !ok {
			most[b], least[b] = v, v
		}
		most[b], least[b] = max(most[b], v), min(least[b], v)
	}
	points := c.finishPoints()
	if len(points) > 3*numWindowBuckets {
		t.Errorf("%d points", len(points))
	}
	for b := range most {
		for _, want := range []float64{most[b], least[b]} {
			if !slices.ContainsFunc(
				points,
				func(p curvePoint) bool { return p.value == want && c.bucketAt(p.atNs) == b },
			) {
				t.Fatalf("part %d lacks %g", b, want)
			}
		}
	}
}

// TestHTMLEscapesNames checks that names from a recording cannot become markup or scripts in the
// page.
func TestHTMLEscapesNames(t *testing.T) {
	testclass.Unit(t)
	page := pageText(t, analyzetest.HostilePageRecording(t).Timeline(), Options{Name: analyzetest.HostileNames[0]})
	for _, bad := range []string{
		"<script>alert",
		"<img",
		"onerror=alert(1)>",
		"<!--",
		"\x00",
		"\x1b",
		"\u202e",
		"\u2028",
		"ZgotmplZ",
	} {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("the page has %q: …%q…", bad, page[max(0, i-80):min(len(page), i+80)])
		}
	}
	if scripts := strings.Count(page, "<script>"); scripts != len(scriptFiles) {
		t.Errorf("%d scripts, want %d", scripts, len(scriptFiles))
	}
	texts := fmt.Sprint(chartDataOf(t, page)["texts"])
	if !strings.Contains(texts, analyzetest.HostileNames[0]) || !strings.Contains(texts, `"><img src=x`) {
		t.Error("the data lacks the unchanged names")
	}
}

// TestHTMLForbidsTheNetwork checks that the Content-Security-Policy allows only the page's own
// scripts, by their hashes.
func TestHTMLForbidsTheNetwork(t *testing.T) {
	testclass.Unit(t)
	page := pageText(t, analyzetest.TrainingRecording(t).Timeline(), Options{Name: "run.parquet"})
	policy := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(page)
	if policy == nil {
		t.Fatal("no policy")
	}
	text := strings.ReplaceAll(strings.ReplaceAll(policy[1], "&#39;", "'"), "&#43;", "+")
	for _, want := range []string{"default-src 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(text, want) {
			t.Errorf("policy %q lacks %s", text, want)
		}
	}
	for rest := page; ; {
		_, after, ok := strings.Cut(rest, "<script>")
		if !ok {
			break
		}
		script, more, _ := strings.Cut(after, "</script>")
		sum := sha256.Sum256([]byte(script))
		if hash := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(text, "'sha256-"+hash+"'") {
			t.Errorf("the policy does not let script %.40q run", script)
		}
		rest = more
	}
	if m := regexp.MustCompile(`(?:src|href)="(?:https?:)?//[^"]*"`).FindString(page); m != "" {
		t.Errorf("the page requests %s", m)
	}
	for _, want := range []string{
		"<strong>growing-site</strong> memory grows by",
		"The recording has no copies in the window.",
		"No loss lowers it.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestHTMLIsBounded checks the size of a page with 2,000 call sites that have long names.
func TestHTMLIsBounded(t *testing.T) {
	testclass.Lab(t, "lab")
	recording := analyzetest.NewTestRecording(t)
	long := strings.Repeat("std::vector<std::pair<", 30)
	for i := range int32(2000) {
		name := fmt.Sprint("place", i, long)
		functions := []string{name}
		for k := range 20 {
			functions = append(functions, fmt.Sprint("caller", i%50, "_", k, long))
		}
		recording.AddStack(i+1, functions...)
		for k := range int64(3) {
			a := recording.AddAlloc(
				int64(i)*10*analyzetest.Ms+k*3*analyzetest.Second,
				analyzetest.Us,
				int64(1<<40)+int64(i)<<24+k<<22,
				1<<20+int64(i),
			)
			a.StackID, a.Site, a.StackStatus = i+1, name, format.StackComplete
		}
		l := recording.AddCall(format.KindLaunch, "cuLaunchKernel", int64(i)*10*analyzetest.Ms, analyzetest.Us)
		l.Kernel, l.StackID, l.Site, l.StackStatus = name, i+1, name, format.StackComplete
	}
	tl := recording.Timeline()
	if page := pageText(t, tl, Options{}); len(page) > 3<<20+1<<16 {
		t.Errorf("the page has %d bytes", len(page))
	}
	if page := pageText(t, tl, Options{Options: query.Options{Top: 1 << 20}}); len(page) > 5<<20 {
		t.Errorf("with all rows the page has %d bytes", len(page))
	}
}

// TestEmptyRecording checks that every section of an empty recording is marked as empty, or not there if the
// page does not mention it.
func TestEmptyRecording(t *testing.T) {
	testclass.Unit(t)
	page := pageText(t, analyzetest.NewTestRecording(t).Timeline(), Options{Name: "empty"})
	for i := range pageSections {
		s := &pageSections[i]
		if s.absent != nil && !strings.Contains(page, `id="`+s.ID+`"`) {
			continue
		}
		if !strings.Contains(
			page,
			`<section id="`+s.ID+`" aria-labelledby="`+s.ID+`-h" class="empty">`,
		) {
			t.Errorf("section %s is not marked as empty", s.ID)
		}
	}
}

// TestHTMLIsDeterministic checks that the pages of one recording are equal, with calls from many
// stacks.
func TestHTMLIsDeterministic(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for id := range int32(20) {
		recording.AddStack(id+1, fmt.Sprintf("calls_%d", id), "main")
		recording.AddLaunch(int64(id+1)*analyzetest.Ms, analyzetest.Us, "kernel", 0, id+1)
	}
	want := pageText(t, recording.Timeline(), Options{Name: "run.parquet"})
	for range 5 {
		if pageText(t, recording.Timeline(), Options{Name: "run.parquet"}) != want {
			t.Fatal("pages of one recording differ")
		}
	}
}

func TestEveryRuleHasASection(t *testing.T) {
	testclass.Unit(t)
	for _, r := range rules.AllRules() {
		if findRuleSection(r) == "" || findRuleSection(r) == "verdicts" {
			t.Errorf("%s: no section for analyze %s", r.ID, r.Report)
		}
	}
}

// TestHTMLLossLowersConfidence checks that the page shows lost calls above the verdicts and as
// marks.
func TestHTMLLossLowersConfidence(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.TrainingRecording(t)
	recording.AddRow(
		format.Row{
			Kind:    format.KindLost,
			Name:    "memory",
			StartNs: analyzetest.Epoch + 5*analyzetest.Second,
			DurNs:   100 * analyzetest.Ms,
			Value:   1204,
			Device:  -1,
		},
	)
	page := pageText(t, recording.Timeline(), Options{})
	banner := strings.Index(page, "<strong>Confidence of the verdicts: low.</strong> 1,204 lost memory calls")
	if banner < 0 || banner > strings.Index(page, `<section id="verdicts"`) {
		t.Error("the banner with the loss is not above the verdicts")
	}
	if marks := fmt.Sprint(
		chartDataOf(t, page)["marks"],
	); !strings.Contains(marks, "1,204 memory calls lost") ||
		!strings.Contains(marks, "1 allocation failed") {
		t.Errorf("marks %s", marks)
	}
}

// TestLibrariesMatchChecksums compares the embedded libraries with the checksums that
// scripts/weblibs.sh wrote.
func TestLibrariesMatchChecksums(t *testing.T) {
	testclass.Unit(t)
	sums := readAsset("web/lib/SHA256SUMS")
	found := 0
	err := fs.WalkDir(webFiles, "web/lib", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		found++
		if line := fmt.Sprintf(
			"%x  %s\n",
			sha256.Sum256([]byte(readAsset(path))),
			d.Name(),
		); !strings.Contains(
			sums,
			line,
		) {
			t.Errorf("%s differs from the file that scripts/weblibs.sh fetched", path)
		}
		return nil
	})
	if err != nil || found != strings.Count(sums, "\n") {
		t.Errorf("%d files, %v", found, err)
	}
	for _, name := range scriptFiles {
		if text := readAsset(
			name,
		); strings.Contains(text, "</script") || strings.Contains(text, "<!--") ||
			strings.Contains(text, "\r") {
			t.Errorf("%s has text that ends the script element, or a carriage return", name)
		}
	}
}

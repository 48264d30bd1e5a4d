package analyze

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io/fs"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	htmlpkg "github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
)

func htmlOf(t *testing.T, tl *timeline.Timeline, opt htmlpkg.Options) string {
	t.Helper()
	var page bytes.Buffer
	if _, err := htmlpkg.Write(tl, &page, opt); err != nil {
		t.Fatal(err)
	}
	return page.String()
}

// htmlDataOf is the JSON that a page's charts are drawn from.
func htmlDataOf(t *testing.T, page string) map[string]any {
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

// TestHTMLKeepsMostAndLeast compares the moments of a page with the state after each call.
func TestHTMLKeepsMostAndLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	for range 20 {
		tp := newTape(t)
		type state struct{ atNs, total int64 }
		states := []state{{tp.meta.StartNs, 0}}
		var live [][2]int64
		next, at, total := int64(1<<40), int64(0), int64(0)
		for range 3000 {
			at += 1 + r.Int64N(20*ms)
			if r.IntN(40) == 0 {
				at += r.Int64N(3 * second) // nothing happens for some parts of the window
			}
			if at >= 59*second {
				break
			}
			if len(live) > 0 && r.IntN(100) < 45 {
				k := r.IntN(len(live))
				tp.free(at, 0, live[k][0])
				total -= live[k][1]
				live = slices.Delete(live, k, k+1)
			} else {
				next += 1 << 30
				b := 1 + r.Int64N(1<<20)
				tp.alloc(at, 0, next, b).Site = fmt.Sprint("site", r.IntN(30))
				live, total = append(live, [2]int64{next, b}), total+b
			}
			states = append(states, state{epoch + at, total})
		}
		tl := tp.timeline()
		scan := htmlpkg.NewMomentScan(tl, &query.Filter{})
		if _, err := tl.ReplayProgram(scan.Consume, nil, nil); err != nil {
			t.Fatal(err)
		}
		scan.Finish()
		s := scan.Devices[0]
		stateAt := func(ns int64) int64 {
			i, found := slices.BinarySearchFunc(states, ns, func(s state, ns int64) int { return int(s.atNs - ns) })
			if !found {
				i--
			}
			return states[i].total
		}
		kept := make(map[int64]bool)
		for i, m := range s.List {
			if i > 0 && m.AtNs < s.List[i-1].AtNs {
				t.Fatal("moments are in no order")
			}
			sum := m.Rest.Bytes
			for _, h := range m.Holders {
				sum += h.Bytes
			}
			if want := stateAt(m.AtNs); m.Total != want || sum != want {
				t.Fatalf("at %d: %d, holders %d, want %d", m.AtNs, m.Total, sum, want)
			}
			kept[int64(s.Of(m.AtNs))<<48|m.Total] = true
		}
		most, least := make(map[int]int64), make(map[int]int64)
		for _, st := range states[1:] {
			b := s.Of(st.atNs)
			if _, ok := most[b]; !ok {
				before := stateAt(max(s.Start(b), epoch))
				most[b], least[b] = before, before
			}
			most[b], least[b] = max(most[b], st.total), min(least[b], st.total)
		}
		for b := range most {
			if !kept[int64(b)<<48|most[b]] || !kept[int64(b)<<48|least[b]] {
				t.Fatalf("part %d: most %d and least %d are not among the moments", b, most[b], least[b])
			}
		}
		// Between moments a curve holds its value: at the end of an idle stretch it must be right.
		for i, m := range s.List[:len(s.List)-1] {
			if gap := s.List[i+1].AtNs - 1; s.Of(gap) > s.Of(m.AtNs)+1 && stateAt(s.Start(s.Of(gap))) != m.Total {
				t.Fatalf("after %d the curve stays at %d, but %d is live", m.AtNs, m.Total, stateAt(s.Start(s.Of(gap))))
			}
		}
		if peak := s.Peak.Moment(); peak.Total != slices.MaxFunc(states, func(a, b state) int { return int(a.total - b.total) }).total {
			t.Fatalf("peak %d", peak.Total)
		}
	}
}

func TestCurveKeepsLowestAndHighest(t *testing.T) {
	c := htmlpkg.NewCurve(query.Window{FromNs: 0, ToNs: 1000 * second})
	r := rand.New(rand.NewPCG(1, 2))
	most, least := make(map[int]float64), make(map[int]float64)
	for at := int64(0); at < 1000*second; at += 50 * ms {
		v := r.NormFloat64()
		c.Add(at, v)
		b := c.Of(at)
		if _, ok := most[b]; !ok {
			most[b], least[b] = v, v
		}
		most[b], least[b] = max(most[b], v), min(least[b], v)
	}
	points := c.Finish()
	if len(points) > 3*htmlpkg.HTMLBuckets {
		t.Errorf("%d points", len(points))
	}
	for b := range most {
		for _, want := range []float64{most[b], least[b]} {
			if !slices.ContainsFunc(points, func(p htmlpkg.Point) bool { return p.Value == want && c.Of(p.AtNs) == b }) {
				t.Fatalf("part %d lacks %g", b, want)
			}
		}
	}
}

// hostileNames are names that would end the script, the attribute or the page that they stand in.
var hostileNames = []string{
	`</script><script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'; alert(1); //`, `<!--<script>`, `{{.Data}}`, "]]>\u2028\u2029", "\x00\x1b[31m\x7f", "\u202egnp.exe", "\xff\xfe",
	`javascript:alert(1)`, `&lt;b&gt;`, "`${alert(1)}`",
}

func hostilePage(t *testing.T) *tape {
	tp := newTape(t)
	tp.meta.Host, tp.meta.DriverVersion, tp.meta.GpurecVersion = hostileNames[0], hostileNames[1], hostileNames[0]
	for i, name := range hostileNames {
		id := int32(i + 1)
		tp.add(format.Row{Kind: format.KindProcess, Name: name, Pid: 42 + id, StartNs: epoch, Device: -1, Message: `{"exe":"/x"}`})
		tp.add(format.Row{Kind: format.KindDevice, Name: name, Bytes: 1 << 36, StartNs: epoch, Device: id})
		tp.add(format.Row{Kind: format.KindNote, Message: name, StartNs: epoch, Device: -1})
		tp.stack(id, name, "main"+name)
		for k := range int64(40) {
			a := tp.alloc(int64(i)*ms+k*second, us, int64(1<<40)+k<<30+int64(i)<<24, 2<<20)
			a.StackID, a.Site, a.StackStatus, a.Device, a.MemoryKind = id, name, format.StackComplete, id, format.MemoryDevice
			l := tp.call(format.KindLaunch, name, int64(i)*ms+k*second+500*ms, us)
			l.Kernel, l.StackID, l.Site = name, id, name
		}
		failed := tp.call(format.KindAPI, name, 50*second, us)
		failed.Result, failed.Site = 1, name
		tp.xid(51*second, id, 42, 31, format.XidFact{Text: name, Process: name})
	}
	tp.gpus()
	return tp
}

// TestHTMLEscapesNames checks that nothing that a program chose makes it into the page as markup.
func TestHTMLEscapesNames(t *testing.T) {
	page := htmlOf(t, hostilePage(t).timeline(), htmlpkg.Options{Name: hostileNames[0]})
	for _, bad := range []string{"<script>alert", "<img", "onerror=alert(1)>", "<!--", "\x00", "\x1b", "\u202e", "\u2028", "ZgotmplZ"} {
		if i := strings.Index(page, bad); i >= 0 {
			t.Errorf("the page has %q: …%q…", bad, page[max(0, i-80):min(len(page), i+80)])
		}
	}
	if scripts := strings.Count(page, "<script>"); scripts != len(htmlpkg.HTMLScripts) {
		t.Errorf("%d scripts, want %d", scripts, len(htmlpkg.HTMLScripts))
	}
	texts := fmt.Sprint(htmlDataOf(t, page)["texts"])
	if !strings.Contains(texts, hostileNames[0]) || !strings.Contains(texts, `"><img src=x`) {
		t.Error("the data lacks names as they are")
	}
}

// TestHTMLForbidsTheNetwork checks the policy: scripts by their hashes, nothing else.
func TestHTMLForbidsTheNetwork(t *testing.T) {
	page := htmlOf(t, training(t).timeline(), htmlpkg.Options{Name: "run.parquet"})
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
		t.Errorf("the page asks for %s", m)
	}
	for _, want := range []string{"<strong>growing-site</strong> grows by", "No copies in the window.", "nothing weakens them"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestHTMLIsBounded has two thousand places with long names.
func TestHTMLIsBounded(t *testing.T) {
	tp := newTape(t)
	long := strings.Repeat("std::vector<std::pair<", 30)
	for i := range int32(2000) {
		name := fmt.Sprint("place", i, long)
		functions := []string{name}
		for k := range 20 {
			functions = append(functions, fmt.Sprint("caller", i%50, "_", k, long))
		}
		tp.stack(i+1, functions...)
		for k := range int64(3) {
			a := tp.alloc(int64(i)*10*ms+k*3*second, us, int64(1<<40)+int64(i)<<24+k<<22, 1<<20+int64(i))
			a.StackID, a.Site, a.StackStatus = i+1, name, format.StackComplete
		}
		l := tp.call(format.KindLaunch, "cuLaunchKernel", int64(i)*10*ms, us)
		l.Kernel, l.StackID, l.Site, l.StackStatus = name, i+1, name, format.StackComplete
	}
	tl := tp.timeline()
	if page := htmlOf(t, tl, htmlpkg.Options{}); len(page) > 3<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	if page := htmlOf(t, tl, htmlpkg.Options{Options: query.Options{Top: 1 << 20}}); len(page) > 5<<20 {
		t.Errorf("with all rows the page has %d bytes", len(page))
	}
}

// TestHTMLOfLittle has nothing to show, and says so.
func TestHTMLOfLittle(t *testing.T) {
	page := htmlOf(t, newTape(t).timeline(), htmlpkg.Options{Name: "empty"})
	for i := range htmlpkg.HTMLSections {
		if s := &htmlpkg.HTMLSections[i]; !strings.Contains(page, `<section id="`+s.Id+`" aria-labelledby="`+s.Id+`-h" class="empty">`) {
			t.Errorf("section %s is not said to be empty", s.Id)
		}
	}
}

// TestHTMLIsTheSameEachTime writes the page of calls from many stacks several times.
func TestHTMLIsTheSameEachTime(t *testing.T) {
	tp := newTape(t)
	for id := range int32(20) {
		tp.stack(id+1, fmt.Sprintf("calls_%d", id), "main")
		tp.launched(int64(id+1)*ms, us, "kernel", 0, id+1)
	}
	want := htmlOf(t, tp.timeline(), htmlpkg.Options{Name: "run.parquet"})
	for range 5 {
		if htmlOf(t, tp.timeline(), htmlpkg.Options{Name: "run.parquet"}) != want {
			t.Fatal("pages of one recording differ")
		}
	}
}

// TestHTMLTellsWhatRulesTell compares the list at the top with the report of rules.
func TestHTMLTellsWhatRulesTell(t *testing.T) {
	row := regexp.MustCompile(`<tr><td><span class="level \w+">(\w+)</span></td><td><strong>([\w-]+)</strong> ([^<]*)(?:<div class="where">([^<]*)</div>)?<div class="advice">([^<]*)</div>`)
	for name, tp := range map[string]*tape{"troubled": troubled(t), "ranks": ranks(t), "training": training(t), "hostile": hostilePage(t), "steady": steady(t)} {
		for _, opt := range []query.Options{{}, {Suppressions: parsedSuppressions(t, "leak:train_step")}} {
			page := htmlOf(t, tp.timeline(), htmlpkg.Options{Options: opt, Name: "run.parquet"})
			r := checked(t, tp, rules.Options{Options: opt})
			var want, got []string
			for i := range cells(t, r, "hits", "rule") {
				var one []string
				for _, column := range []string{"severity", "rule", "what", "where", "advice"} {
					if v := cells(t, r, "hits", column)[i]; v != "<nil>" {
						one = append(one, htmlpkg.Brief(v))
					} else {
						one = append(one, "")
					}
				}
				want = append(want, strings.Join(one, " | "))
			}
			for _, m := range row.FindAllStringSubmatch(page, -1) {
				got = append(got, html.UnescapeString(strings.Join(m[1:], " | ")))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s:\n%q\nwant\n%q", name, got, want)
			}
		}
	}
}

// TestHTMLSaysWhatNoRuleTells has a space that is fragmented, one call that fails, and an Xid of yesterday.
func TestHTMLSaysWhatNoRuleTells(t *testing.T) {
	tp := steady(t)
	fragmented(tp)
	tp.call(format.KindAPI, "cuModuleLoadData", 59*second, us).Result = 209
	tp.xid(-90*second, 1, 42, 31, format.XidFact{Text: "MMU Fault", Before: true})
	page := htmlOf(t, tp.timeline(), htmlpkg.Options{Name: "run.parquet"})
	for _, want := range []string{"2.0 GiB of 3.9 GiB reserved by process 42 cannot be used or given back: ", "1 call of cuModuleLoadData returned CUDA_ERROR_NO_BINARY_FOR_GPU, first at 59.00s", "1 Xid reported before the recording began"} {
		if strings.Count(page, "<li>"+want) != 1 {
			t.Errorf("the page lacks %q", want)
		}
	}
	if page := htmlOf(t, steady(t).timeline(), htmlpkg.Options{Name: "run.parquet"}); strings.Contains(page, `class="findings"`) {
		t.Error("a steady training has findings")
	}
}

func TestEveryRuleHasASection(t *testing.T) {
	for _, r := range rules.All() {
		if htmlpkg.Section(r) == "" || htmlpkg.Section(r) == "verdicts" {
			t.Errorf("%s: no section for analyze %s", r.Id, r.Report)
		}
	}
}

// TestHTMLLossWeakensVerdicts has the loss at the top.
func TestHTMLLossWeakensVerdicts(t *testing.T) {
	tp := training(t)
	tp.add(format.Row{Kind: format.KindLost, Name: "memory", StartNs: epoch + 5*second, DurNs: 100 * ms, Value: 1204, Device: -1})
	page := htmlOf(t, tp.timeline(), htmlpkg.Options{})
	banner := strings.Index(page, "<strong>Confidence of the verdicts: low.</strong> 1,204 calls that allocate or free were lost")
	if banner < 0 || banner > strings.Index(page, `<section id="verdicts"`) {
		t.Error("the loss does not stand above the verdicts")
	}
	if marks := fmt.Sprint(htmlDataOf(t, page)["marks"]); !strings.Contains(marks, "1,204 memory calls lost") || !strings.Contains(marks, "1 allocation failed") {
		t.Errorf("marks %s", marks)
	}
}

// TestHTMLLibrariesAreTheCommittedOnes checks what is embedded against the sums that scripts/weblibs.sh wrote.
func TestHTMLLibrariesAreTheCommittedOnes(t *testing.T) {
	sums := htmlpkg.Asset("web/lib/SHA256SUMS")
	found := 0
	err := fs.WalkDir(htmlpkg.Web, "web/lib", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "SHA256SUMS" {
			return err
		}
		found++
		if line := fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(htmlpkg.Asset(path))), d.Name()); !strings.Contains(sums, line) {
			t.Errorf("%s is another file than scripts/weblibs.sh fetched", path)
		}
		return nil
	})
	if err != nil || found != strings.Count(sums, "\n") {
		t.Errorf("%d files, %v", found, err)
	}
	for _, name := range htmlpkg.HTMLScripts {
		if text := htmlpkg.Asset(name); strings.Contains(text, "</script") || strings.Contains(text, "<!--") || strings.Contains(text, "\r") {
			t.Errorf("%s cannot stand in a page", name)
		}
	}
}

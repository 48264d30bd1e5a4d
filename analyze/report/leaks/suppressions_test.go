package leaks_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestSuppressionPatterns(t *testing.T) {
	testclass.Unit(t)
	for pattern, c := range map[string]struct{ matches, misses string }{
		"fill":          {"fill Cache::fill(int) refill", "fil Fill"},
		"^Cache::":      {"Cache::fill Cache::", "MyCache::fill"},
		"fill$":         {"fill refill fillfill", "fill(int) filler"},
		"^fill$":        {"fill", "refill fills fillfill"},
		"Cache*int":     {"Cache::fill(int) myCache_int_ Cacheint", "int_Cache Cache::fill"},
		"^a*b$":         {"ab aXb abab", "aXbc Xab a"},
		"^*fill":        {"fill refill", "f"},
		"fill*$":        {"fill filled refilled", "f"},
		"a*a":           {"aa aXa", "a"},
		"aba*ba$":       {"ababa abaXba", "aba"},
		"libtorch*.so$": {"/venv/libtorch_cuda.so", "/venv/libtorch_cuda.so.1"},
		"train.py":      {"/app/train.py", "/app/trainXpy"}, // no regular expression
	} {
		one := analyzetest.ParseSuppressions(t, "leak:"+pattern).Patterns[0]
		for _, name := range strings.Fields(c.matches) {
			if !one.MatchesName(name) {
				t.Errorf("%s does not match %s", pattern, name)
			}
		}
		for _, name := range strings.Fields(c.misses) {
			if one.MatchesName(name) {
				t.Errorf("%s matches %s", pattern, name)
			}
		}
	}
}

func TestSuppressionLines(t *testing.T) {
	testclass.Unit(t)
	s := analyzetest.ParseSuppressions(t, "# what stays\n\n  leak:Cache::fill \r\nleak:^/opt/lib:x\n")
	if len(s.Patterns) != 2 || s.Patterns[0].Text != "Cache::fill" || s.Patterns[1].Text != "^/opt/lib:x" {
		t.Errorf("%+v", s.Patterns)
	}
	for text, want := range map[string]string{
		"leak:a\nCache::fill\n":            `known.supp:2: "Cache::fill": "Cache" is not a known suppression type; use leak:PATTERN`,
		"fill":                             `known.supp:1: "fill": write it as leak:PATTERN`,
		"#\n\nrace:f":                      `known.supp:3: "race:f": "race" is not a known suppression type; use leak:PATTERN`,
		"leak:":                            "matches everything",
		"leak:*":                           "matches everything",
		"leak:^*$":                         "matches everything",
		"a\x1b[2J":                         `"a?[2J"`,
		"leak:a\nleak:" + big(5000):        "known.supp:2: \"\": the line is longer than 4096 bytes",
		strings.Repeat("leak:a\n", 10_001): "known.supp:10001",
	} {
		_, err := query.ParseSuppressions("known.supp", strings.NewReader(text))
		var bad *query.SuppressionError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

func big(n int) string { return strings.Repeat("x", n) }

func TestSuppressedMemoryIsInNoNumber(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		lines string
		want  string // number of blocks, bytes and pattern
		grows float64
	}{
		"by function":              {"leak:log_metrics", "580 2432696320 log_metrics", 0},
		"by a frame in the middle": {"leak:^train_step$", "680 3271557120 ^train_step$", 0},
		"by file":                  {"leak:/src/train.cc", "all", 0},
		"by module":                {"leak:/app/", "all", 0},
		"the first that matches": {"leak:log_metrics\nleak:train_step", "580 2432696320 log_metrics; 100 " +
			"838860800 train_step", 0},
		"another":                      {"leak:forward", "", 1},
		"what was freed is not listed": {"leak:^load_weights$\nleak:evaluate", "8 4294967296 ^load_weights$", 1},
	} {
		tl := analyzetest.TrainingRecording(t).Timeline()
		r, err := leaks.Run(tl, query.Options{Suppressions: analyzetest.ParseSuppressions(t, c.lines)})
		if err != nil {
			t.Fatal(err)
		}
		var used []string
		var blocks int64
		for _, table := range r.Tables[1:] {
			for i := range table.Rows {
				cell := func(key string) any { return table.Cell(&table.Rows[i], key) }
				blocks += cell("count").(int64)
				used = append(used, fmt.Sprint(cell("count"), " ", cell("bytes"), " ", cell("template")))
			}
		}
		got := strings.Join(used, "; ")
		switch c.want {
		case "all":
			if blocks != 688 { // of 689 live blocks, the one of cuMemHostAlloc has no stack
				t.Errorf("%s: %d blocks: %s", name, blocks, got)
			}
		default:
			if got != c.want {
				t.Errorf("%s: %s, want %s", name, got, c.want)
			}
		}
		analyzetest.CheckNumbers(
			t,
			r,
			map[string]float64{
				"growing":           c.grows,
				"suppressed_blocks": float64(blocks),
				"live_count":        689 - float64(blocks),
			},
		)
	}
}

// TestSuppressionsOfEndedProcesses checks that suppressed memory causes no alarm, however the process
// ended.
func TestSuppressionsOfEndedProcesses(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddStack(1, "fill", "main")
	for i := range int64(100) {
		analyzetest.SetStackAndSite(
			recording.AddAlloc(
				analyzetest.Second+i*100*analyzetest.Ms,
				analyzetest.Us,
				0x7f0000000000+i*analyzetest.Mib,
				analyzetest.Mib,
			),
			1,
			"fill (a.cc:1)",
		)
		// without a stack: by its call site
		r := recording.AddAlloc(
			analyzetest.Second+i*100*analyzetest.Ms,
			analyzetest.Us,
			0x7e0000000000+i*analyzetest.Mib,
			analyzetest.Mib,
		)
		r.Site = "grow (b.py:2)"
	}
	recording.AddExit(42, 20*analyzetest.Second)
	tl := recording.Timeline()
	r, err := leaks.Run(tl, query.Options{Suppressions: analyzetest.ParseSuppressions(t, "leak:^fill$\nleak:b.py")})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CheckNumbers(
		t,
		r,
		map[string]float64{
			"growing":           0,
			"exit_leaks":        0,
			"live_count":        0,
			"suppressed_blocks": 200,
			"suppressed_bytes":  float64(200 * analyzetest.Mib),
		},
	)
	if r.NoMatch != nil {
		t.Errorf("%v", r.NoMatch)
	}
	analyzetest.CompareGolden(t, "suppressions.table", analyzetest.RenderReport(t, r, render.Options{Width: 110}))
}

// FuzzSuppressions reads random files. A file is read, or refused with a line number. Its patterns
// match like equivalent regular expressions.
func FuzzSuppressions(f *testing.F) {
	f.Add("leak:^a*b$\n# c\n", "aXb")
	f.Add("leak:a*a", "aa")
	f.Add("race:x", "x")
	f.Add("leak:$^*", "\xff")
	f.Fuzz(func(t *testing.T, text, name string) {
		s, err := query.ParseSuppressions("f", strings.NewReader(text))
		var bad *query.SuppressionError
		if (err == nil) == (s == nil) ||
			err != nil && (!errors.As(err, &bad) || bad.Line < 1 || bad.Line > 1+strings.Count(text, "\n")) {
			t.Fatalf("%v %v", s, err)
		}
		if s == nil {
			return
		}
		for i := range s.Patterns {
			one := &s.Patterns[i]
			got := one.MatchesName(name)
			if !utf8.ValidString(one.Text) || !utf8.ValidString(name) {
				continue // regular expressions match runes
			}
			if want := asRegexp(one.Text).MatchString(name); got != want {
				t.Errorf("%q in %q: %v, want %v", one.Text, name, got, want)
			}
		}
	})
}

// asRegexp returns a pattern as a regular expression.
func asRegexp(pattern string) *regexp.Regexp {
	inner, begin := strings.CutPrefix(pattern, "^")
	inner, end := strings.CutSuffix(inner, "$")
	var b strings.Builder
	b.WriteString("(?s)")
	if begin {
		b.WriteString(`\A`)
	}
	for i, part := range strings.Split(inner, "*") {
		if i > 0 {
			b.WriteString(".*")
		}
		b.WriteString(regexp.QuoteMeta(part))
	}
	if end {
		b.WriteString(`\z`)
	}
	return regexp.MustCompile(b.String())
}

package ship

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/gpurec/gpurec/agent"
	"github.com/gpurec/gpurec/internal/testclass"
)

// source is an agent with settable numbers.
type source struct {
	metrics agent.Metrics
	err     error
}

func (s *source) read(context.Context) (agent.Metrics, error) { return s.metrics, s.err }

func (s *source) collector() *Collector {
	return NewCollector(s.read, func(r int32) string { return fmt.Sprint("E", r) }, func(error) {})
}

// fullMetrics returns numbers for all metrics of the table.
func fullMetrics() agent.Metrics {
	samples := make(map[string]float64)
	for i := range Table {
		if Table[i].Sample != "" {
			samples[Table[i].Sample] = 1
		}
	}
	samples["clock_event_reasons"] = 8
	return agent.Metrics{
		Version:   agent.MetricsVersion,
		Calls:     9,
		LostCalls: map[string]int64{"launch": 1},
		GPUs:      []agent.GPUMetrics{{UUID: "GPU-1", Name: "H200", Samples: samples, Xids: map[int64]int64{79: 2}}},
		Processes: []agent.ProcessTotals{{
			Pid: 7, ProcessIdentity: agent.ProcessIdentity{Name: "train", Rank: "3"}, UsedBytes: map[int32]int64{0: 5},
			Counters: agent.Counters{
				Copies: map[string]agent.CopyTotals{"HtoD": {Calls: 1, Bytes: 4}}, Errors: map[int32]int64{2: 1},
				Memory: map[string]agent.MemoryTotals{"device": {AllocatedBytes: 30, FreedBytes: 10}},
			},
		}},
		Triggers: []agent.TriggerCount{
			{Kind: "oom", Outcome: "captured", Count: 2, Newest: "20260101T000000Z-oom-k3f1"},
		},
	}
}

// scrape returns an answer in a format.
func scrape(t *testing.T, c *Collector, accept string) *http.Response {
	t.Helper()
	h, err := Handler(c)
	if err != nil {
		t.Fatal(err)
	}
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request)
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	return w.Result()
}

// families returns the parsed metrics by name.
func families(t *testing.T, c *Collector) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	got, err := parser.TextToMetricFamilies(scrape(t, c, "text/plain").Body)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestEachMetricIsServed(t *testing.T) {
	testclass.Unit(t)
	s := &source{metrics: fullMetrics()}
	got := families(t, s.collector())
	for i := range Table {
		m := &Table[i]
		f := got[m.Name]
		if f == nil {
			t.Errorf("%s is missing", m.Name)
			continue
		}
		if isCounter := f.GetType() == dto.MetricType_COUNTER; isCounter != (m.Kind == prometheus.CounterValue) ||
			f.GetHelp() != m.Help {
			t.Errorf("%s: %v %q", m.Name, f.GetType(), f.GetHelp())
		}
	}
	for name := range got {
		if !slices.ContainsFunc(Table, func(m Metric) bool { return m.Name == name }) {
			t.Errorf("%s is not in the table", name)
		}
	}
	if v := got["gpurec_memory_live_bytes"].Metric[0].GetGauge().GetValue(); v != 20 {
		t.Errorf("live: %v", v)
	}
}

func TestLint(t *testing.T) {
	testclass.Unit(t)
	s := &source{metrics: fullMetrics()}
	text, err := io.ReadAll(scrape(t, s.collector(), "text/plain").Body)
	must(t, err)
	if path := os.Getenv("GPUREC_METRICS"); path != "" { // scripts/fleet.sh passes it to promtool
		must(t, os.WriteFile(path, text, 0o644))
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	must(t, err)
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestExemplarsNameTheRecording(t *testing.T) {
	testclass.Unit(t)
	s := &source{metrics: fullMetrics()}
	var text strings.Builder
	must(t, scrape(t, s.collector(), "application/openmetrics-text; version=1.0.0").Write(&text))
	want := `gpurec_triggers_total{outcome="captured",trigger="oom"} 2.0 # {recording="20260101T000000Z-oom-k3f1"} 1.0`
	if !strings.Contains(text.String(), want) {
		t.Errorf("no exemplar in\n%s", text.String())
	}
}

func TestAgentIsAway(t *testing.T) {
	testclass.Unit(t)
	s := &source{err: errors.New("connection refused")}
	c := s.collector()
	if got := families(t, c); len(got) != 1 || got["gpurec_agent_up"].Metric[0].GetGauge().GetValue() != 0 {
		t.Errorf("%v", got)
	}
	s.metrics, s.err = fullMetrics(), nil
	if got := families(t, c); got["gpurec_agent_up"].Metric[0].GetGauge().GetValue() != 1 {
		t.Errorf("%v", got)
	}
}

// TestSeriesStayBounded changes 1,000 processes, and compares the sum with that of the series.
func TestSeriesStayBounded(t *testing.T) {
	testclass.Unit(t)
	s := new(source)
	c := s.collector()
	last := 0.0
	for round := range 5 {
		s.metrics.Processes = nil
		for i := range 1000 {
			p := agent.ProcessTotals{
				Pid:             int32(i + 1),
				ProcessIdentity: agent.ProcessIdentity{Name: "p", Rank: fmt.Sprint(i)},
			}
			p.Launches = int64(1 + round)
			s.metrics.Processes = append(s.metrics.Processes, p)
		}
		sum, rest := 0.0, 0.0
		f := families(t, c)["gpu_cuda_kernel_launch_calls_total"]
		for _, m := range f.Metric {
			sum += m.GetCounter().GetValue()
			if slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetValue() == other }) {
				rest = m.GetCounter().GetValue()
			}
		}
		if len(f.Metric) != maxSeries+1 || sum != float64(1000*(1+round)) || rest <= last {
			t.Errorf("%d series, sum %v, rest %v after %v", len(f.Metric), sum, rest, last)
		}
		last = rest
	}
}

// TestDocs compares docs/metrics.md with the table.
func TestDocs(t *testing.T) {
	testclass.Unit(t)
	const path = "../docs/metrics.md"
	text, err := os.ReadFile(path)
	must(t, err)
	const begin, end = "<!-- metrics -->\n", "<!-- end of metrics -->"
	before, rest, _ := strings.Cut(string(text), begin)
	_, after, found := strings.Cut(rest, end)
	if !found {
		t.Fatalf("%s has no mark %q", path, end)
	}
	want := before + begin + docs() + end + after
	if os.Getenv("GPUREC_UPDATE") != "" {
		must(t, os.WriteFile(path, []byte(want), 0o644))
	} else if want != string(text) {
		t.Errorf("%s differs from the table; run GPUREC_UPDATE=1 go test ./ship", path)
	}
}

// docs returns the table of metrics as Markdown.
func docs() string {
	var b strings.Builder
	b.WriteString("| metric | type, unit | labels | meaning | OpenTelemetry |\n|---|---|---|---|---|\n")
	seen := make(map[string]bool)
	for i := range Table {
		m := &Table[i]
		if seen[m.Name] {
			continue
		}
		seen[m.Name] = true
		kind := "gauge"
		if m.Kind == prometheus.CounterValue {
			kind = "counter"
		}
		labels := strings.Join(m.Labels, ", ")
		labels = strings.Replace(labels, strings.Join(processLabels, ", "), "*process*", 1)
		labels = strings.Replace(labels, strings.Join(gpuLabels, ", "), "*GPU*", 1)
		fmt.Fprintf(&b, "| `%s` | %s, %s | %s | %s | `%s` |\n", m.Name, kind, m.Unit, labels, m.Help, m.OTel)
	}
	return b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

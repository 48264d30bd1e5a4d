package memory_test

import (
	"math"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestReconcileHasGraphExecs checks that the memory of executable graphs has its own part, and "not
// attributed" does not contain it.
func TestReconcileHasGraphExecs(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.ObjectRecording(t).Timeline()
	r, err := memory.RunWithOptions(tl, memory.Options{
		Options: query.Options{Top: 20, MaxFrames: 12}, Reconcile: true,
		At: query.MomentGivenTime, AtNs: analyzetest.Epoch + 59*analyzetest.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	got := parts(t, r)
	const execs = 285 * analyzetest.GraphExecBytes / analyzetest.Mib
	if bytes := got["graph execs"]; bytes < execs-8 || bytes > execs+8 || got["not attributed"] > 8 {
		t.Errorf("parts %v, want %d MiB of graph execs and nothing else", got, execs)
	}
	analyzetest.CompareGoldenReports(t, r, "reconcile.objects", 110)
}

// TestObjectCosts checks that an estimate is close to the truth, within its error, or absent.
func TestObjectCosts(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		change func(*analyzetest.TestRecording)
		known  bool
	}{
		"as it is": {func(*analyzetest.TestRecording) {}, true},
		"code is loaded all the time": {func(recording *analyzetest.TestRecording) {
			for at := analyzetest.Second; at < 60*analyzetest.Second; at += analyzetest.Second / 2 {
				analyzetest.SetContext(recording.AddAPICall("cuModuleGetFunction", at, 0x77, 0), 0xc1, 0)
			}
		}, false},
		"the memory does not follow the objects": {func(recording *analyzetest.TestRecording) {
			recording.ChangeSamples(catalog.MetricProcessMemory, func(i int) float64 { return float64(6<<30 + i*7919%64<<20) })
		}, false},
		"few samples": {func(recording *analyzetest.TestRecording) {
			recording.RemoveRows(func(r *format.Row) bool {
				return r.Kind == format.KindNVML && r.StartNs > analyzetest.Epoch+10*analyzetest.Second
			})
		}, false},
		"no samples": {func(recording *analyzetest.TestRecording) {
			recording.RemoveRows(func(r *format.Row) bool { return r.Kind == format.KindNVML })
		}, false},
	} {
		recording := analyzetest.ObjectRecording(t)
		c.change(recording)
		costs, err := memory.EstimateObjectCosts(recording.Timeline(), &query.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		cost, known := costs[objects.KindGraphExec]
		if known != c.known {
			t.Errorf("%s: %+v", name, costs)
		}
		if known &&
			(math.Abs(cost.Bytes-float64(analyzetest.GraphExecBytes)) > cost.Error || cost.Error > cost.Bytes/10) {
			t.Errorf("%s: %.0f ± %.0f bytes, want %d", name, cost.Bytes, cost.Error, analyzetest.GraphExecBytes)
		}
	}
}

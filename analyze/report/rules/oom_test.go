package rules_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestOOMAdviceUnderALimit checks failures under a memory limit: with fragmentation as second cause
// the advice names two remedies, without it only the limit.
func TestOOMAdviceUnderALimit(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		script           func(*analyzetest.TorchScript)
		what, fragmented string // of out-of-memory, and of oom-fragmentation
		advice           string
	}{
		"enough unused memory in pieces": {
			func(s *analyzetest.TorchScript) {
				s.AddSparseSegments(40, 20*analyzetest.Mib, 6*analyzetest.Mib)
				s.AddOutOfMemory(300*analyzetest.Mib, 700*analyzetest.Mib)
			},
			"(limit and fragmentation 1)", "a request for 300.0 MiB failed with 700.0 MiB free and 560.0 MiB unused in " +
				"segments (largest piece 14.0 MiB), under a limit",
			"Enough memory was unused, but in pieces: try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or raise " +
				"the limit (torch.cuda.set_per_process_memory_fraction).",
		},
		"unused pieces smaller than a page": {
			func(s *analyzetest.TorchScript) {
				s.AddSparseSegments(40, 2*analyzetest.Mib, analyzetest.Mib)
				s.AddOutOfMemory(30*analyzetest.Mib, 700*analyzetest.Mib)
			},
			"(limit and fragmentation 1)", "a request for 30.0 MiB failed",
			"Enough memory was unused, but in pieces: free the blocks between the pieces (gpurec analyze frag), or " +
				"raise the limit (torch.cuda.set_per_process_memory_fraction).",
		},
		"the driver's limit": {
			func(s *analyzetest.TorchScript) {
				s.AddSparseSegments(40, 20*analyzetest.Mib, 6*analyzetest.Mib)
				s.AddFailedDriverAlloc(300 * analyzetest.Mib)
				s.AddOutOfMemory(300*analyzetest.Mib, 700*analyzetest.Mib)
			},
			"(limit and fragmentation 1)", "a request for 300.0 MiB failed", "or raise the limit (a MIG slice, a cgroup " +
				"or a quota).",
		},
		"too little unused memory": {
			func(s *analyzetest.TorchScript) {
				s.AddSparseSegments(10, 20*analyzetest.Mib, 6*analyzetest.Mib)
				s.AddOutOfMemory(300*analyzetest.Mib, 700*analyzetest.Mib)
			},
			"(limit 1)", "", "A limit was reached, not the capacity of the device",
		},
	} {
		s := analyzetest.NewTorchScript(t)
		c.script(s)
		r := checked(t, s.Tp, rules.Options{Rules: []string{"out-of-memory", "oom-fragmentation"}})
		what, advice := analyzetest.ColumnTexts(t, r, "hits", "what"), analyzetest.ColumnTexts(t, r, "hits", "advice")
		if len(what) == 0 || !strings.Contains(what[0], c.what) || !strings.Contains(advice[0], c.advice) {
			t.Errorf("%s: %q %q", name, what, advice)
			continue
		}
		if got := strings.Join(
			what[1:],
			"; ",
		); got == "" != (c.fragmented == "") ||
			!strings.HasPrefix(got, c.fragmented) {
			t.Errorf("%s: %q", name, got)
		}
		if len(what) > 1 && advice[1] != advice[0] {
			t.Errorf("%s: advice %q", name, advice)
		}
	}
}

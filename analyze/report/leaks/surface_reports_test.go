package leaks_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestAContextAsArenaIsNoLeak(t *testing.T) {
	testclass.Unit(t)
	arena := func(recording *analyzetest.TestRecording, keep int64) {
		for i := range int64(50) {
			context := 0xc0 + i
			for k := range int64(10) {
				analyzetest.SetContext(
					analyzetest.SetStackAndSite(
						recording.AddAlloc(
							analyzetest.Second+i*analyzetest.Second+k*10*analyzetest.Ms,
							analyzetest.Us,
							0x7f0000000000+k*analyzetest.Mib+i<<32,
							8*analyzetest.Mib,
						),
						1,
						"x",
					),
					context,
					0,
				)
			}
			if i < keep {
				recording.AddAPICall(
					"cuCtxDestroy_v2",
					analyzetest.Second+i*analyzetest.Second+500*analyzetest.Ms,
					context,
					0,
				)
			}
		}
	}
	for name, c := range map[string]struct {
		tape func(*analyzetest.TestRecording)
		want string
	}{
		"a context per step, all destroyed but the last": {func(recording *analyzetest.TestRecording) { arena(recording, 49) }, "churn"},
		"a context per step, none destroyed":             {func(recording *analyzetest.TestRecording) { arena(recording, 0) }, "growing"},
		"one context, reset before the end": {func(recording *analyzetest.TestRecording) {
			recording.AddAPICall("cuDevicePrimaryCtxRetain", 1, 0xd0, 0)
			for i := range int64(500) {
				analyzetest.SetContext(analyzetest.SetStackAndSite(recording.AddAlloc(analyzetest.Second+i*100*analyzetest.Ms, analyzetest.Us, 0x7f0000000000+i*analyzetest.Mib, analyzetest.Mib), 1, "x"), 0xd0, 0)
			}
			recording.AddAPICall("cuDevicePrimaryCtxReset_v2", 52*analyzetest.Second, 0, 0)
			recording.AddExit(42, 53*analyzetest.Second)
		}, "growing"},
		"one block, and a reset before the end": {func(recording *analyzetest.TestRecording) {
			analyzetest.SetStackAndSite(recording.AddAlloc(analyzetest.Second, analyzetest.Us, 0x1000, 8), 1, "y")
			analyzetest.SetContext(analyzetest.SetStackAndSite(recording.AddAlloc(30*analyzetest.Second, analyzetest.Us, 0x2000, analyzetest.Mib), 1, "x"), 0xd0, 0)
			recording.AddAPICall("cuDevicePrimaryCtxReset_v2", 52*analyzetest.Second, 0, 0)
		}, "exit leak"},
	} {
		recording := analyzetest.NewTestRecording(t)
		c.tape(recording)
		if got := verdicts(t, recording, query.Options{})["x"]; got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

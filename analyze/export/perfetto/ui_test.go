package perfetto

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestPerfettoUIShowsTracks opens a trace in the Perfetto UI. It uses an old version of the UI, so
// the trace must not need newer features.
func TestPerfettoUIShowsTracks(t *testing.T) {
	testclass.Browser(t)
	ui, tools, browser := viewers.ToolPath(t, "perfetto_ui"), viewers.ToolPath(t, "puppeteer"), viewers.ChromiumPath(t)
	recording := analyzetest.TrainingRecording(t)
	for i := range int64(60) {
		recording.AddNVMLSample(0, i*analyzetest.Second, catalog.MetricGPUUtilization, float64(i))
	}
	c := analyzetest.CommunicatorRow{ID: 0x77, Ptr: 0x10, Pid: 42, Rank: 1, Size: 2}
	recording.AddCommunicator(0, c)
	recording.AddCollective(analyzetest.Second, analyzetest.Ms, "ncclAllReduce", c, 1, 8)
	trace, shot := filepath.Join(t.TempDir(), "run.pftrace"), filepath.Join(t.TempDir(), "ui.png")
	file, err := os.Create(trace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WriteTrace(recording.Timeline(), file, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	lines := viewers.RunNode(
		t,
		analyzetest.RepositoryPath(t, "scripts", "perfetto_ui.mjs"),
		ui,
		tools,
		browser,
		trace,
		shot,
	)
	if len(lines) != 1 {
		t.Fatalf("%d lines", len(lines))
	}
	t.Logf("%s", lines[0])
	var result struct {
		Problems    []string `json:"problems"`
		Tracks      []string `json:"tracks"`
		Groups      []string `json:"groups"`
		TraceErrors int      `json:"trace_errors"`
		ShotBytes   int64    `json:"shot_bytes"`
	}
	if err := json.Unmarshal(lines[0], &result); err != nil {
		t.Fatal(err)
	}
	for _, p := range result.Problems {
		t.Error(p)
	}
	for _, want := range []string{
		"stream 7 (order of calls, not GPU time)",
		"live memory",
		"collectives of 0000000000000077, rank 1 of 2",
		"NVML gpu_utilization_percent",
		"train 42",
	} {
		if !slices.Contains(result.Tracks, want) {
			t.Errorf("no track %q in %q", want, result.Tracks)
		}
	}
	if !slices.Contains(result.Groups, "train 42") {
		t.Errorf("no process in %q", result.Groups)
	}
	if result.TraceErrors > 0 {
		t.Errorf("the UI counts %d errors in the trace", result.TraceErrors)
	}
	if info, err := os.Stat(shot); err != nil || info.Size() == 0 || info.Size() != result.ShotBytes {
		t.Errorf("no picture: %v, %v", info, err)
	}
}

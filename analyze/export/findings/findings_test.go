package findings_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/findings"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const second, us = analyzetest.Second, analyzetest.Us

// TestFindingsOfACapture writes the findings of a recording with a sticky error and a merged trigger.
func TestFindingsOfACapture(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for i := range int64(10) {
		recording.AddLaunch(second+i*us, us, "gemm", 0, 0)
	}
	for i := range int64(3) {
		recording.AddSync("cuStreamSynchronize", 2*second+i*us, us, 0, 0).Result = 700
	}
	recording.Meta.Host, recording.Meta.Complete = "node7", format.CompleteFrozen
	recording.Meta.Trigger = &format.Trigger{
		ID: "a", Kind: "sticky", AtNs: 5, Pid: 42, Job: "train", Evidence: "cuStreamSynchronize returned 700",
		Outcome: format.TriggerCaptured,
		Merged:  []format.Trigger{{ID: "a", Kind: "exit", AtNs: 6, Evidence: "killed", Outcome: format.TriggerMerged}},
	}
	var out strings.Builder
	if err := findings.Write(&out, recording.Timeline()); err != nil {
		t.Fatal(err)
	}
	var lines []findings.Finding
	for line := range strings.Lines(out.String()) {
		var f findings.Finding
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		if f.Recording != "a" || f.Host != "node7" || f.What == "" || f.Severity == "" {
			t.Errorf("%+v", f)
		}
		lines = append(lines, f)
	}
	if len(lines) < 3 || lines[0].Rule != findings.RuleTrigger || lines[0].Trigger != "sticky" ||
		lines[0].Job != "train" ||
		lines[1].Trigger != "exit" ||
		lines[1].Outcome != format.TriggerMerged ||
		lines[2].Rule != "broken-context" ||
		lines[2].Advice == "" ||
		lines[2].Confidence == "" ||
		lines[2].AtNs != 5 {
		t.Errorf("%+v", lines)
	}
	recording.Meta.Trigger = nil
	if err := findings.Write(&out, recording.Timeline()); err == nil {
		t.Error("a recording without a trigger has findings")
	}
}

package changes_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/changes"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// eventful returns a recording of a clock that falls, and of all that can happen at that time.
func eventful(t testing.TB) *analyzetest.TestRecording {
	j := analyzetest.NewChangeJob(3, "clock", "noise")
	recording := j.Recording(t)
	at := j.AtNs
	recording.AddXid(at+analyzetest.Second, 1, 42, 94, format.XidFact{PCI: "0000:5e:00.0", Text: "Contained"})
	recording.AddRow(format.Row{
		Kind: format.KindThread, Name: "loader", Pid: 42, Tid: 43, StartNs: analyzetest.Epoch, Device: -1,
	})
	for i := range int64(3) {
		l := recording.AddFullLaunch(at+(i+1)*100*analyzetest.Ms, "second_load")
		l.Tid, l.StackID = 43, 3
	}
	recording.AddAlloc(at+200*analyzetest.Ms, analyzetest.Us, 0, 200<<30).Result = 2
	recording.AddRow(format.Row{
		Kind: format.KindLost, Name: "launch", StartNs: analyzetest.Epoch + at + 2*analyzetest.Second,
		DurNs: analyzetest.Ms, Value: 12, Device: -1,
	})
	return recording
}

func TestChangesGolden(t *testing.T) {
	testclass.Unit(t)
	r := runChanges(t, eventful(t))
	analyzetest.CompareGoldenReports(t, r, "changes", 150)
	analyzetest.CheckNumbers(t, r, map[string]float64{"events": 1, "changes": 3, "series": 10})
}

// TestLinksAreNamed checks the NVLinks of an event.
func TestLinksAreNamed(t *testing.T) {
	testclass.Unit(t)
	r := runChanges(t, analyzetest.NewChangeJob(5, "nvlink errors", "noise").Recording(t))
	texts := strings.Join(analyzetest.ColumnTexts(t, r, "around", "detail"), "\n")
	if !strings.Contains(texts, "NVLink replays: link 3 ") {
		t.Errorf("no link is named:\n%s", texts)
	}
}

// TestLossLowersConfidence loses launches at the time of a fault.
func TestLossLowersConfidence(t *testing.T) {
	testclass.Unit(t)
	j := analyzetest.NewChangeJob(2, "step time", "noise")
	recording := j.Recording(t)
	recording.AddRow(format.Row{
		Kind: format.KindLost, Name: "launch", StartNs: analyzetest.Epoch + j.AtNs, DurNs: analyzetest.Ms, Value: 5,
		Device: -1,
	})
	r := runChanges(t, recording)
	for i, series := range analyzetest.ColumnTexts(t, r, "changes", "series") {
		if got := analyzetest.ColumnTexts(t, r, "changes", "confidence")[i]; got != "low" {
			t.Errorf("%s: confidence %s, want low", series, got)
		}
	}
	if len(r.Tables[0].Rows) == 0 {
		t.Error("no change")
	}
}

// TestFilterSelects runs the report for a part of the time, and for a process that does not exist.
func TestFilterSelects(t *testing.T) {
	testclass.Unit(t)
	j := analyzetest.NewChangeJob(2, "step time", "noise")
	tl := j.Recording(t).Timeline()
	after := query.Options{Filter: query.Filter{FromNs: analyzetest.Epoch + j.AtNs + 2*analyzetest.Second}}
	r, err := changes.Run(tl, after)
	if err != nil || len(r.Tables[0].Rows) > 0 {
		t.Errorf("%d changes after the fault, %v", len(r.Tables[0].Rows), err)
	}
	r, err = changes.Run(tl, query.Options{Filter: query.Filter{Pids: []int32{7}}})
	if err != nil || r.NoMatch == nil {
		t.Errorf("no-match %v, %v", r.NoMatch, err)
	}
}

// TestEmptyRecordings runs the report on recordings without samples, without launches and without anything.
func TestEmptyRecordings(t *testing.T) {
	testclass.Unit(t)
	for name, kind := range map[string]string{"no sample": format.KindNVML, "no launch": format.KindLaunch, "": ""} {
		recording := analyzetest.SteadyRecording(t)
		recording.RemoveRows(func(r *format.Row) bool { return r.Kind == kind || kind == "" })
		if r := runChanges(t, recording); len(r.Tables[0].Rows) > 0 {
			t.Errorf("%s: %v", name, r.Tables[0].Rows)
		}
	}
}

// TestMarksNameEvents checks the marks for the charts.
func TestMarksNameEvents(t *testing.T) {
	testclass.Unit(t)
	j := analyzetest.NewChangeJob(3, "clock", "noise")
	_, marks, err := changes.RunForCharts(j.Recording(t).Timeline(), query.Options{}, changes.Shared{})
	if err != nil || len(marks) != 1 || !strings.HasPrefix(marks[0].Text, "SM clock -") ||
		marks[0].AtNs < analyzetest.Epoch+j.AtNs-analyzetest.Second {
		t.Errorf("marks %+v, %v", marks, err)
	}
}

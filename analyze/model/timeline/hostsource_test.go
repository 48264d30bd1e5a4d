package timeline_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize"
)

// TestSourceLinesOfHostStacks checks that the line of a stack of class host is its innermost own frame, below
// frames of the kernel, also if it is the first one. A stack of a call has a call first.
func TestSourceLinesOfHostStacks(t *testing.T) {
	testclass.Unit(t)
	native := func(name string, line int32) format.Frame {
		return format.Frame{Func: name, Module: "/app/train", File: "/src/train.cc", Line: line, Type: "native"}
	}
	kernel := format.Frame{Func: "futex_wait", Type: format.FrameKernel}
	recording := analyzetest.NewTestRecording(t)
	recording.AddStackRow(1, format.StackComplete, "", "", []format.Frame{native("spin", 5), native("main", 9)})
	recording.AddStackRow(2, format.StackComplete, "", "", []format.Frame{kernel, native("lock", 6), native("main", 9)})
	recording.AddStackRow(3, format.StackComplete, "", "", []format.Frame{native("call", 7), native("main", 9)})
	recording.AddCPUSample(42, analyzetest.Second, analyzetest.Ms, 1)
	recording.AddWait(42, 2*analyzetest.Second, analyzetest.Ms, 0, format.StateSleeping, 2, format.WaitFact{})
	analyzetest.SetStackAndSite(recording.AddLaunch(3*analyzetest.Second, 1, "k", 0, 3), 3, "")
	tl := recording.Timeline()
	if s := tl.AddSourceLines(new(symbolize.Finder)); s.Err != nil {
		t.Fatal(s.Err)
	}
	for id, want := range map[int32]string{1: "spin (train.cc:5)", 2: "lock (train.cc:6)", 3: "main (train.cc:9)"} {
		if got := tl.SiteOfStack(id); got != want {
			t.Errorf("stack %d: %s, want %s", id, got, want)
		}
	}
}

package objects_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const ms = analyzetest.Ms

// replay returns the changes of a recording as "+kind handle" for created objects, "-" for destroyed
// ones, "?" for lost destructions, "c" for ends with the context, and "x" for ends with the process. "="
// marks objects that are live at the end.
func replay(
	t *testing.T,
	recording *analyzetest.TestRecording,
) (list []string, counts [objects.NumKinds]objects.Counts) {
	t.Helper()
	tl := recording.Timeline()
	signs := map[objects.ChangeKind]string{
		objects.ChangeCreated: "+", objects.ChangeDestroyed: "-", objects.ChangeDestroyLost: "?",
		objects.ChangeEndedWithContext: "c", objects.ChangeEndedByExit: "x",
	}
	live := 0
	counts, err := objects.Read(tl, func(c *objects.Change) {
		list = append(list, fmt.Sprintf("%s%s %x", signs[c.Kind], c.Object.Kind, c.Handle))
		if c.Kind == objects.ChangeCreated {
			live++
		} else {
			live--
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return append(list, fmt.Sprint("=", live)), counts
}

func check(t *testing.T, recording *analyzetest.TestRecording, want ...string) [objects.NumKinds]objects.Counts {
	t.Helper()
	got, counts := replay(t, recording)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	return counts
}

func TestContextsEndTheirObjects(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	in := func(name string, at, ptr, context int64) {
		analyzetest.SetContext(recording.AddAPICall(name, at, ptr, 0), context, 0)
	}
	in("cuCtxCreate_v3", 1*ms, 0xc2, 0xc1)
	in("cuEventCreate", 2*ms, 0xe1, 0xc2)
	in("cuGraphCreate", 3*ms, 0x91, 0xc2) // graphs do not end with a context
	in("cuEventCreate", 4*ms, 0xe2, 0xc1) // in another context
	in("cuCtxDestroy_v2", 5*ms, 0xc2, 0xc1)
	in("cuEventCreate", 6*ms, 0xe1, 0xc1) // the same handle again: a new event
	in("cuCtxCreate_v3", 7*ms, 0xc3, 0xc1)
	in("cuStreamCreate", 8*ms, 0x51, 0xc3)
	in("cuCtxDestroy_v2", 9*ms, 0xc3, 0xc1) // the process creates nothing more
	check(t, recording, "+context c2", "+event e1", "+graph 91", "+event e2", "-context c2", "cevent e1", "+event e1",
		"+context c3", "+stream 51", "-context c3", "xstream 51", "=3")
}

func TestPrimaryContexts(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for i, name := range []string{
		"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxReset_v2", // a reset keeps references
		"cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease", // the last one is older
	} {
		ptr := int64(0)
		if i < 2 {
			ptr = 0xc1
		}
		recording.AddAPICall(name, int64(i+1)*ms, ptr, 3)
	}
	counts := check(
		t,
		recording,
		"+primary context 3",
		"+primary context 3",
		"-primary context 3",
		"-primary context 3",
		"=0",
	)
	if n := counts[objects.KindPrimaryContext].Older; n != 1 {
		t.Errorf("%d older references", n)
	}
}

func TestAttachedContextsAreReferences(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddAPICall("cuCtxCreate", 1*ms, 0xc2, 0)
	recording.AddAPICall("cuCtxAttach", 2*ms, 0xc2, 0)
	recording.AddAPICall("cuCtxDetach", 3*ms, 0xc2, 0)
	recording.AddAPICall("cuCtxAttach", 4*ms, 0xc2, 0)
	recording.AddAPICall("cuCtxDestroy", 5*ms, 0xc2, 0) // destroys it with all references
	check(t, recording, "+context c2", "+context c2", "-context c2", "+context c2", "-context c2", "-context c2", "=0")
}

func TestCaptures(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddAPICall("cuStreamEndCapture", 1*ms, 0x91, 0)
	recording.AddAPICall("cuGraphCreate", 2*ms, 0x92, 0)
	recording.AddAPICall("cuStreamBeginCaptureToGraph", 3*ms, 0x92, 0)
	recording.AddAPICall("cuStreamEndCapture", 4*ms, 0x92, 0) // the same graph
	recording.AddAPICall("cuGraphDestroy", 5*ms, 0x92, 0)
	recording.AddAPICall("cuStreamEndCapture", 6*ms, 0x92, 0) // a new graph
	recording.AddAPICall("cuStreamEndCapture", 7*ms, 0, 0).Result = 901
	check(t, recording, "+graph 91", "+graph 92", "-graph 92", "+graph 92", "=2")
}

func TestUnmatchedCalls(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddAPICall("cuEventDestroy_v2", 1*ms, 0xe9, 0) // older than the recording
	recording.AddAPICall("cuEventCreate", 2*ms, 0xe1, 0)
	recording.AddAPICall("cuEventCreate", 3*ms, 0xe1, 0) // the destruction in between is missing
	recording.AddAPICall("cuEventCreate", 4*ms, 0xe2, 0).Result = 2
	recording.AddAPICall("cuEventDestroy_v2", 5*ms, 0xe1, 0).Result = 400
	recording.AddAPICall("cuEventDestroy_v2", 6*ms, 0, 0)
	recording.AddAPICall("cuEventCreate", 7*ms, 0, 0).Flags = format.FlagOpen
	counts := check(t, recording, "+event e1", "?event e1", "+event e1", "=1")
	if got, want := counts[objects.KindEvent], (objects.Counts{Older: 1, Unknown: 1, LostDestroys: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestNestedAndConcurrentCalls checks that calls of a wrapper and of the function inside it are one
// step, and a handle that another thread gets before the destroying call returns is a new object.
func TestNestedAndConcurrentCalls(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	call := func(name string, at, dur int64, tid int32) {
		row := recording.AddAPICall(name, at, 0x51, 0)
		row.DurNs, row.Tid = dur, tid
	}
	call("cuStreamCreate", 10*ms, 9*ms, 42)
	call("cuStreamCreateWithPriority", 11*ms, 5*ms, 42)
	call("cuStreamDestroy", 20*ms, 9*ms, 42)
	call("cuStreamDestroy_v2", 21*ms, 6*ms, 42)
	call("cuStreamCreate", 22*ms, 1*ms, 43) // before the destruction returns
	counts := check(t, recording, "+stream 51", "-stream 51", "+stream 51", "=1")
	if got, want := counts[objects.KindStream], (objects.Counts{Nested: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestProcessesHaveTheirOwnHandles(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddAPICall("cuModuleLoadData", 1*ms, 0x31, 0)
	recording.AddAPICall("cuModuleLoadData", 2*ms, 0x31, 0).Pid = 43
	recording.AddAPICall("cuModuleUnload", 3*ms, 0x31, 0).Pid = 43
	recording.AddAPICall("cuLibraryLoadData", 4*ms, 0x31, 0).Pid = 43 // another kind with the same handle
	recording.AddExit(43, 5*ms)
	check(t, recording, "+module 31", "+module 31", "-module 31", "+library 31", "xlibrary 31", "=1")
}

func TestMemoryOfOtherProcesses(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	call := func(kind, name string, at, ptr int64) {
		row := recording.AddMemoryCall(kind, format.MemoryIPC, at, ptr, 0)
		row.Name = name
	}
	call(format.KindBorrow, "cuIpcOpenMemHandle_v2", 1*ms, 0x7000)
	call(format.KindBorrow, "cuIpcOpenMemHandle_v2", 2*ms, 0x7000) // once more
	call(format.KindReturn, "cuIpcCloseMemHandle", 3*ms, 0x7000)
	recording.AddAPICall("cuIpcOpenEventHandle", 4*ms, 0xe1, 0)
	check(t, recording, "+ipc memory 7000", "+ipc memory 7000", "-ipc memory 7000", "+event e1", "=2")
}

package collective_test

import (
	"math"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// lastOf returns the last operations of a recording.
func lastOf(t *testing.T, recording *analyzetest.TestRecording, opt query.Options) *collective.Last {
	t.Helper()
	last, err := collective.ReadLast(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return last
}

func TestReadLastKeepsTheLastOfEachCommunicator(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.CommunicatorRow{ID: 1, Ptr: 0x10, Pid: 42, Size: 2}
	b := analyzetest.CommunicatorRow{ID: 2, Ptr: 0x20, Pid: 42, Size: 2}
	recording.AddCommunicator(0, a)
	recording.AddCommunicator(0, b)
	recording.AddCollective(analyzetest.Ms, analyzetest.Us, "ncclBroadcast", b, 1, 8)
	for i := range int64(200) {
		recording.AddCollective((i+2)*analyzetest.Ms, analyzetest.Us, "ncclAllReduce", a, i+1, 8)
	}
	for peer := range int32(2) {
		recording.AddCollective(analyzetest.Ms, analyzetest.Us, "ncclSend", a, 1, 8).Root = peer
	}
	open := recording.AddRow(format.Row{
		Kind: format.KindCommunicatorCall, Name: "ncclCommInitRank", StartNs: analyzetest.Epoch + analyzetest.Second,
		Pid: 42, Tid: 43, Flags: format.FlagOpen, Communicator: 3, CommunicatorRank: 1, CommunicatorSize: 4,
	})
	last := lastOf(t, recording, query.Options{})
	count := make(map[collective.Function]int)
	for i := range last.Operations {
		o := &last.Operations[i]
		count[o.Function]++
		if o.Function == collective.AllReduce && o.Sequence <= 136 {
			t.Errorf("operation %d is not one of the last 64", o.Sequence)
		}
	}
	if count[collective.AllReduce] != 64 || count[collective.Broadcast] != 1 || count[collective.Send] != 2 {
		t.Error(count)
	}
	if last.FromNs != math.MinInt64 || len(last.Open) != 1 || last.Open[0].StartNs != open.StartNs ||
		last.Open[0].Size != 4 || last.Open[0].Tid != 43 {
		t.Errorf("from %d, open %+v", last.FromNs, last.Open)
	}
}

func TestReadLastEndsWithTheWindow(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	a := analyzetest.CommunicatorRow{ID: 1, Ptr: 0x10, Pid: 42, Size: 2}
	recording.AddCommunicator(0, a)
	for i := range int64(3) {
		recording.AddCollective(i*analyzetest.Second, 500*analyzetest.Ms, "ncclAllReduce", a, i+1, 8)
	}
	opt := query.Options{}
	opt.ToNs = analyzetest.Epoch + 1200*analyzetest.Ms
	last := lastOf(t, recording, opt)
	if len(last.Operations) != 2 || last.Operations[0].IsOpen || !last.Operations[1].IsOpen {
		t.Errorf("%+v", last.Operations)
	}
}

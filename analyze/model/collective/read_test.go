package collective_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestReadJoinsOperationsAndCommunicators checks which communicator an operation has: addresses are used again,
// other processes have the same address, and some communicators have no facts.
func TestReadJoinsOperationsAndCommunicators(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	first := analyzetest.CommunicatorRow{ID: 11, Ptr: 0x1000, Pid: 42, Rank: 1, Size: 4, Name: "world"}
	second := analyzetest.CommunicatorRow{ID: 22, Ptr: 0x1000, Pid: 42, Size: 2}
	other := analyzetest.CommunicatorRow{ID: 11, Ptr: 0x1000, Pid: 43, Rank: 2, Size: 4}
	unknown := analyzetest.CommunicatorRow{ID: 33, Ptr: 0x3000, Pid: 43, Rank: 3, Size: 8}
	recording.AddCommunicator(analyzetest.Second, first)
	replaced := first
	replaced.Name = "data parallel"
	recording.AddCommunicator(analyzetest.Second, replaced)
	recording.AddCommunicator(10*analyzetest.Second, second)
	recording.AddCommunicator(analyzetest.Second, other)
	recording.AddCollective(11*analyzetest.Second, 10, "ncclAllGather", second, 1, 100)
	recording.AddCollective(2*analyzetest.Second, 10, "ncclAllReduce", first, 1, 1000).DataType = "bfloat16"
	recording.AddCollective(3*analyzetest.Second, 10, "ncclBcast", other, 2, 7).Flags = format.FlagOpen
	recording.AddCollective(4*analyzetest.Second, 10, "ncclReduceScatter", unknown, 9, 7).Reduction = format.ReductionCustom
	recording.AddCall(format.KindCommunicatorCall, "ncclGroupEnd", 5*analyzetest.Second, 10)
	s, err := collective.Read(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		function collective.Function
		id       int64
		pid      int32
		name     string
		isOpen   bool
	}{
		{collective.AllReduce, 11, 42, "data parallel", false},
		{collective.Broadcast, 11, 43, "", true},
		{collective.ReduceScatter, 33, 43, "", false},
		{collective.AllGather, 22, 42, "", false},
	}
	if len(s.Operations) != len(want) {
		t.Fatalf("%d operations, want %d", len(s.Operations), len(want))
	}
	for i, w := range want {
		o := &s.Operations[i]
		c := &s.Communicators[o.Communicator]
		if o.Function != w.function || c.ID != w.id || c.Pid != w.pid || c.Name != w.name || o.IsOpen != w.isOpen {
			t.Errorf("operation %d is %v of %+v", i, o.Function, c)
		}
	}
	if o := &s.Operations[0]; format.DataTypes[o.DataType] != "bfloat16" || o.Count != 1000 || o.Sequence != 1 {
		t.Errorf("the first operation is %+v", o)
	}
	if o := &s.Operations[2]; int(o.Reduction) != len(format.Reductions) {
		t.Errorf("a custom reduction has the number %d", o.Reduction)
	}
	opt := query.Options{}
	opt.Pids = []int32{43}
	if s, err = collective.Read(recording.Timeline(), opt); err != nil || len(s.Operations) != 2 {
		t.Errorf("the filter left %d operations, error %v", len(s.Operations), err)
	}
}

// FuzzRead adds rows with any values. Read must not fail, and operations refer to communicators that exist.
func FuzzRead(f *testing.F) {
	f.Add("ncclAllReduce", "float32", `{"how":"init"}`, int64(1), int64(-1), int64(1<<62), 1e300, int32(-1), int32(4))
	f.Add("pncclBcast", "", `{`, int64(-1<<63), int64(0), int64(0), -1.0, int32(1<<30), int32(-1))
	f.Fuzz(func(t *testing.T, name, dataType, message string, at, ptr, seq int64, value float64, pid, size int32) {
		recording := analyzetest.NewTestRecording(t)
		for _, start := range []int64{at, analyzetest.Epoch + at%analyzetest.Second} {
			for _, kind := range []string{format.KindCollective, format.KindCommunicator, format.KindCommunicatorCall} {
				recording.AddRow(format.Row{
					Kind:             kind,
					Name:             name,
					StartNs:          start,
					DurNs:            seq,
					Pid:              pid,
					Ptr:              ptr,
					Communicator:     seq,
					Message:          message,
					CommunicatorSize: size,
					Sequence:         seq,
					Value:            value,
					DataType:         dataType,
					Reduction:        dataType,
					Bytes:            seq,
				})
			}
		}
		s, err := collective.Read(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range s.Operations {
			o := &s.Operations[i]
			if o.DurNs < 0 || o.Count < 0 || o.Bytes < 0 || int(o.Communicator) >= len(s.Communicators) {
				t.Errorf("operation %+v", o)
			}
			if size := s.Communicators[o.Communicator].Size; size < 0 || o.TotalBytes(int(size)) < 0 {
				t.Errorf("a communicator of %d ranks, %d bytes", size, o.TotalBytes(int(size)))
			}
			_ = o.Function.String()
		}
	})
}

package collective_test

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// streamed returns the operations of a stream and its communicators.
func streamed(t *testing.T, s *collective.Stream) (list []collective.Operation) {
	t.Helper()
	if err := s.Each(func(o *collective.Operation) error {
		list = append(list, *o)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestStreamHasTheOperationsOfRead compares a stream with Read, for operations whose rows are in any order.
func TestStreamHasTheOperationsOfRead(t *testing.T) {
	testclass.Unit(t)
	random := rand.New(rand.NewPCG(1, 2))
	recording := analyzetest.NewTestRecording(t)
	known := analyzetest.CommunicatorRow{ID: 1, Ptr: 0x10, Pid: 42, Size: 2}
	unknown := analyzetest.CommunicatorRow{ID: 2, Ptr: 0x20, Pid: 43, Rank: 1, Size: 2}
	recording.AddCommunicator(0, known)
	for i := range int64(5000) {
		c := known
		if i%3 == 0 {
			c = unknown
		}
		at := i*analyzetest.Ms + random.Int64N(1000)*analyzetest.Us
		recording.AddCollective(at, analyzetest.Us, "ncclAllReduce", c, i+1, 8)
	}
	tl := recording.Timeline()
	want, err := collective.Read(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := collective.NewStream(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := streamed(t, s)
	if !reflect.DeepEqual(got, want.Operations) || len(got) != 5000 {
		t.Errorf("%d operations differ from those of Read, %d", len(got), len(want.Operations))
	}
	if !reflect.DeepEqual(s.Communicators(), want.Communicators) {
		t.Errorf("communicators %+v, want %+v", s.Communicators(), want.Communicators)
	}
}

// TestStreamHasOperationsThatOverlapTheWindow checks the ends of the window, and that an error of yield ends Each.
func TestStreamHasOperationsThatOverlapTheWindow(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	c := analyzetest.CommunicatorRow{ID: 1, Ptr: 0x10, Pid: 42, Size: 2}
	recording.AddCommunicator(0, c)
	for i := range int64(5) {
		recording.AddCollective(i*analyzetest.Second, 100*analyzetest.Ms, "ncclAllReduce", c, i+1, 8)
	}
	recording.AddCollective(analyzetest.Ms, 10*analyzetest.Second, "ncclBroadcast", c, 6, 8).Flags = format.FlagOpen
	var opt query.Options
	opt.FromNs, opt.ToNs = analyzetest.Epoch+1050*analyzetest.Ms, analyzetest.Epoch+3*analyzetest.Second
	s, err := collective.NewStream(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	got := streamed(t, s)
	if len(got) != 4 || !got[0].IsOpen || got[1].Sequence != 2 || got[3].Sequence != 4 {
		t.Errorf("%+v", got)
	}
	wrong := errors.New("wrong")
	if err := s.Each(func(*collective.Operation) error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("the error of yield is %v", err)
	}
}

package hang_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestHangNamesTheUsualWaker has a process that hangs at a condition. Thread 43 ended 5 of its 6 earlier waits there,
// and now waits for thread 44, which ended its waits, and now sleeps.
func TestHangNamesTheUsualWaker(t *testing.T) {
	testclass.Unit(t)
	const ms, second = analyzetest.Ms, analyzetest.Second
	recording := analyzetest.NewTestRecording(t)
	addHangStacks(recording)
	recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "python3", Pid: 42, StartNs: analyzetest.Epoch, Device: -1},
	)
	condition := format.WaitFact{Reason: format.ReasonCondition, SystemCall: "futex"}
	for i := range int64(6) {
		main := recording.AddWait(42, i*100*ms, 50*ms, 0, format.StateSleeping, lockStack, condition)
		feeder := recording.AddWait(43, i*100*ms, 50*ms, 0, format.StateSleeping, readStack, condition)
		recording.AddWaker(feeder, 42, 44, "loader", "futex")
		if waker := int32(43); i < 5 {
			recording.AddWaker(main, 42, waker, "feeder", "futex")
		} else {
			recording.AddWaker(main, 42, 45, "other", "futex")
		}
	}
	for _, th := range []struct {
		tid   int32
		fact  format.WaitFact
		stack int32
	}{
		{42, condition, lockStack},
		{43, condition, readStack},
		{44, format.WaitFact{Reason: format.ReasonSleep, SystemCall: "clock_nanosleep"}, loadStack},
	} {
		th.fact.When, th.fact.Thread = format.WhenEnd, "python3"
		recording.AddThreadState(42, th.tid, 59*second, 50*second, format.StateSleeping, th.fact, th.stack)
	}
	r, err := hang.Run(recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "thread 44 loader ended 6 of 6 earlier waits of the thread before it, and now sleeps, at load (data.py:12) " +
		"(1 thread on the way)"
	if got := factText(r, "result"); !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
}

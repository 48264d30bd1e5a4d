package analyze

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFailOnHangs checks that a job that hung before its recording fails a condition on hangs. An idle
// server does not.
func TestFailOnHangs(t *testing.T) {
	testclass.Unit(t)
	sleeps := format.WaitFact{Reason: format.ReasonSleep, SystemCall: "clock_nanosleep"}
	polls := format.WaitFact{Reason: format.ReasonPoll, SystemCall: "epoll_wait"}
	hung := analyzetest.HungJob(t, 2, "cuStreamSynchronize", sleeps, "/app/data.py:12 load").WriteAndOpen().Path
	idle := analyzetest.HungJob(t, 2, analyzetest.Broadcast, polls, "/app/serve.py:12 loop").WriteAndOpen().Path
	for _, c := range [][]string{{"hang", "hanging>0"}, {"rules", "hang>0"}, {"summary", "problems>0"}} {
		for path, want := range map[string]int{hung: message.ExitFailOn, idle: 0} {
			if _, stderr, code := runHere(t, "analyze", c[0], "--fail-on", c[1], path); code != want {
				t.Errorf("%v: exit status %d, want %d: %s", c, code, want, stderr)
			}
		}
	}
}

//go:build linux

package threadstate

import (
	"encoding/json"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/hoststack"
)

func TestRowsOfASnapshot(t *testing.T) {
	testclass.Unit(t)
	snapshot := &hoststack.ProcessSnapshot{Pid: 42, Python: "3.12", Threads: []hoststack.Thread{
		{
			Tid:    43,
			Name:   "load\x1b\xff",
			State:  hoststack.StateRunning,
			CPU:    3,
			RunNs:  7,
			OffNs:  9,
			Status: hoststack.StatusComplete,
			Wait:   format.WaitFact{Reason: format.ReasonGIL, OwnerTid: 44},
			Frames: []format.Frame{{Func: "load", Type: "python"}},
		},
		{Tid: 44, Status: hoststack.StatusMissed, Reason: "it ran"},
		{Tid: 45, Status: hoststack.StatusTruncated, Reason: "deep"},
	}}
	rows, left := makeRows(snapshot, format.WhenEnd, 1000)
	if len(rows) != 3 || left != 0 {
		t.Fatalf("%d rows, %d left", len(rows), left)
	}
	r := rows[0]
	if r.Kind != format.KindThreadState || r.StartNs != 1000 || r.DurNs != 9 || r.Pid != 42 || r.Tid != 43 ||
		r.CPU != 3 ||
		r.Value != 7 ||
		r.Name != hoststack.StateRunning ||
		len(r.Frames) != 1 ||
		r.StackStatus != format.StackComplete {
		t.Errorf("%+v", r)
	}
	var fact format.WaitFact
	if err := json.Unmarshal(
		[]byte(r.Message),
		&fact,
	); err != nil || fact.When != format.WhenEnd || fact.Python != "3.12" ||
		fact.OwnerTid != 44 ||
		fact.Thread == "" {
		t.Errorf("%+v, %v", fact, err)
	}
	if rows[1].StackStatus != format.StackNone || rows[2].StackStatus != format.StackTruncated {
		t.Errorf("statuses %s, %s", rows[1].StackStatus, rows[2].StackStatus)
	}
	snapshot.Threads = make([]hoststack.Thread, maxThreads+5)
	if rows, left := makeRows(snapshot, format.WhenSilence, 0); len(rows) != maxThreads || left != 5 {
		t.Errorf("%d rows, %d left", len(rows), left)
	}
}

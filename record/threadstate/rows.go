//go:build linux

package threadstate

import (
	"encoding/json"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hoststack"
)

// maxThreads bounds the threads of one snapshot that have a row.
const maxThreads = 2048

// stackStatuses are the stack statuses of rows by status of a snapshot's thread.
var stackStatuses = map[string]string{
	hoststack.StatusComplete:  format.StackComplete,
	hoststack.StatusTruncated: format.StackTruncated,
	hoststack.StatusMissed:    format.StackNone,
}

// makeRows returns the rows of a snapshot. All have the time of the snapshot, atNs in Unix ns, which
// identifies it together with the pid. left is the number of threads without a row.
func makeRows(snapshot *hoststack.ProcessSnapshot, when string, atNs int64) (rows []format.Row, left int64) {
	n := min(len(snapshot.Threads), maxThreads)
	for i := range snapshot.Threads[:n] {
		t := &snapshot.Threads[i]
		fact := t.Wait
		fact.When, fact.Thread, fact.Python, fact.Missing = when, t.Name, snapshot.Python, t.Reason
		message, err := json.Marshal(fact)
		if err != nil {
			continue // cannot happen: strings and numbers always encode
		}
		rows = append(rows, format.Row{
			Kind: format.KindThreadState, StartNs: atNs, DurNs: t.OffNs, Name: t.State, Pid: int32(snapshot.Pid),
			Tid: int32(t.Tid), CPU: int32(t.CPU), Value: float64(t.RunNs), StackStatus: stackStatuses[t.Status],
			Message: string(message), Device: -1, Frames: t.Frames,
		})
	}
	return rows, int64(len(snapshot.Threads) - n)
}

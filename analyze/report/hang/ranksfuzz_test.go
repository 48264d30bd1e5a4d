package hang_test

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/format"
)

// FuzzRanks adds rows with any values to the recording of two ranks. The report must not fail, and it prints no
// control characters.
func FuzzRanks(f *testing.F) {
	f.Add("ncclAllReduce", "init", int64(0), int64(1), int64(7), int64(5), int32(0), int32(2), int32(1), int32(0))
	f.Add(
		"ncclSend",
		"a\x1b[31m",
		int64(1)<<62,
		int64(-1),
		int64(0),
		int64(-5),
		int32(1),
		int32(1<<30),
		int32(-7),
		int32(1),
	)
	f.Add(
		"ncclCommInitRank",
		"",
		int64(-1)<<62,
		int64(1)<<62,
		int64(3),
		int64(9),
		int32(-1),
		int32(3),
		int32(2),
		int32(1),
	)
	f.Fuzz(func(t *testing.T, name, text string, at, dur, id, seq int64, rank, size, root, flags int32) {
		recording := analyzetest.NewTestRecording(t)
		made := &job.Job{Paths: []string{recording.Path}, Hosts: []job.Host{{Name: text}}}
		for pid := range int32(2) {
			recording.AddRow(
				format.Row{Kind: format.KindProcess, Name: text, Pid: pid, StartNs: analyzetest.Epoch, Device: -1},
			)
			made.Members = append(made.Members, job.Member{
				Pid: pid, Rank: int(rank ^ pid), WorldSize: int(size), Label: fmt.Sprint(pid),
			})
			for i, start := range []int64{at, analyzetest.Epoch + at%analyzetest.Second} {
				for _, kind := range []string{
					format.KindCollective, format.KindCommunicator, format.KindCommunicatorCall, format.KindSync,
				} {
					recording.AddRow(format.Row{
						Kind:             kind,
						Name:             name,
						StartNs:          start,
						DurNs:            dur,
						Pid:              pid,
						Tid:              pid,
						Ptr:              id,
						Communicator:     id,
						CommunicatorRank: rank ^ pid,
						CommunicatorSize: size,
						Sequence:         seq + int64(i),
						Root:             root,
						Flags:            flags,
						Value:            float64(seq),
						Bytes:            seq,
						Stream:           int64(root),
						Group:            int64(flags),
						Message:          fmt.Sprintf(`{"how":%q,"numbering":"exact","end_ns":%d}`, text, dur),
					})
				}
			}
		}
		recording.WriteAndOpen()
		r, err := hang.RunJob(made, query.Options{Top: 20})
		if err != nil {
			t.Fatal(err)
		}
		analyzetest.CheckSafeToPrint(t, r)
	})
}

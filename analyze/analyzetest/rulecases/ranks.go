package rulecases

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
)

// site is the call site of stack 1.
const site = "train_step (train.cc:10)"

// addRanks adds four ranks with one communicator. Each calls 20 operations. last returns the function of
// the 21st operation of a rank, "" for none.
func addRanks(recording *analyzetest.TestRecording, last func(rank int) string) {
	for rank := range 4 {
		pid := int32(200 + rank)
		recording.AddRow(format.Row{
			Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: analyzetest.Epoch, Device: -1,
			Message: `{"exe":"/app/train"}`,
		})
		recording.AddIdentity(pid, analyzetest.RankIdentity(rank, 4, "llama"), nil)
		c := analyzetest.CommunicatorRow{ID: 0xfa93, Ptr: 0x5000, Pid: pid, Rank: int32(rank), Size: 4, Device: -1}
		recording.AddCommunicator(analyzetest.Second, c)
		for i := range int64(20) {
			recording.AddCollective(
				2*analyzetest.Second+i*analyzetest.Ms,
				analyzetest.Us,
				"ncclAllReduce",
				c,
				i+1,
				1024,
			)
		}
		if name := last(rank); name != "" {
			recording.AddCollective(3*analyzetest.Second, analyzetest.Us, name, c, 21, 1024)
		}
	}
}

// rankMissingCase is the case of rank-missing: rank 2 does not call the last operation, or all ranks do.
func rankMissingCase() Case {
	return Case{
		Fires: func(recording *analyzetest.TestRecording) {
			addRanks(recording, func(rank int) string { return map[bool]string{false: "ncclAllReduce"}[rank == 2] })
		},
		Misses: func(recording *analyzetest.TestRecording) {
			addRanks(recording, func(int) string { return "ncclAllReduce" })
		},
		Where:    fmt.Sprintf("rank %d (pid %d)", 2, 202),
		Severity: "problem",
	}
}

// mismatchCase is the case of collective-mismatch: rank 1 calls another operation, or all ranks call the same.
func mismatchCase() Case {
	return Case{
		Fires: func(recording *analyzetest.TestRecording) {
			addRanks(recording, func(rank int) string {
				return map[bool]string{true: "ncclAllGather", false: "ncclAllReduce"}[rank == 1]
			})
		},
		Misses: func(recording *analyzetest.TestRecording) {
			addRanks(recording, func(int) string { return "ncclAllGather" })
		},
		Where:    fmt.Sprintf("rank %d (pid %d)", 1, 201),
		Severity: "problem",
	}
}

// addSteps adds four ranks that make 100 steps of 20 ms: an AllReduce, and a wait for the GPU. The host of rank 2 is late
// by lateNs in each step; then the others wait longer.
func addSteps(recording *analyzetest.TestRecording, lateNs int64) {
	const stepNs, waitNs = 20 * analyzetest.Ms, 5 * analyzetest.Ms
	for rank := range 4 {
		pid := int32(200 + rank)
		c := addRank(recording, rank, pid)
		for i := range int64(100) {
			at := 2*analyzetest.Second + i*(stepNs+lateNs)
			calledNs, wait := at+lateNs, int64(waitNs)
			if rank != 2 {
				calledNs, wait = at, waitNs+lateNs
			}
			recording.AddCollective(calledNs, analyzetest.Us, "ncclAllReduce", c, i+1, 1<<20)
			row := recording.AddSync("cuStreamSynchronize", calledNs+10*analyzetest.Us, wait, 7, 0)
			row.Pid, row.Tid = pid, pid
		}
	}
}

// addRank adds the process of one of four ranks, and returns its communicator.
func addRank(recording *analyzetest.TestRecording, rank int, pid int32) analyzetest.CommunicatorRow {
	recording.AddRow(format.Row{
		Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: analyzetest.Epoch, Device: -1,
		Message: `{"exe":"/app/train"}`,
	})
	recording.AddIdentity(pid, analyzetest.RankIdentity(rank, 4, "llama"), nil)
	c := analyzetest.CommunicatorRow{ID: 0xfa93, Ptr: 0x5000, Pid: pid, Rank: int32(rank), Size: 4, Device: -1}
	recording.AddCommunicator(analyzetest.Second, c)
	return c
}

// stragglerCase is the case of straggler: the host of rank 2 is late by 6 ms a step, or by 0.1 ms.
func stragglerCase() Case {
	return Case{
		Fires:    func(recording *analyzetest.TestRecording) { addSteps(recording, 6*analyzetest.Ms) },
		Misses:   func(recording *analyzetest.TestRecording) { addSteps(recording, 100*analyzetest.Us) },
		Where:    fmt.Sprintf("rank %d (pid %d)", 2, 202),
		Severity: "notice",
	}
}

// smallCollectivesCase is the case of small-collectives: 2,000 AllReduces of 1 KiB in 2 s, or of 1 MiB.
func smallCollectivesCase() Case {
	add := func(recording *analyzetest.TestRecording, elements int64) {
		for rank := range 4 {
			c := addRank(recording, rank, int32(200+rank))
			for i := range int64(2000) {
				at := 2*analyzetest.Second + i*analyzetest.Ms
				analyzetest.SetStackAndSite(
					recording.AddCollective(at, 20*analyzetest.Us, "ncclAllReduce", c, i+1, elements), 1, site)
			}
		}
	}
	return Case{
		Fires:    func(recording *analyzetest.TestRecording) { add(recording, 256) },
		Misses:   func(recording *analyzetest.TestRecording) { add(recording, 1<<18) },
		Where:    site,
		Severity: "notice",
	}
}

// unevenMemoryCase is the case of uneven-memory: rank 3 has 3 GiB and the others 2 GiB, or all have about the same.
func unevenMemoryCase() Case {
	add := func(recording *analyzetest.TestRecording, last int64) {
		for rank := range int64(4) {
			pid := int32(200 + rank)
			c := addRank(recording, int(rank), pid)
			recording.AddCollective(2*analyzetest.Second, analyzetest.Us, "ncclAllReduce", c, 1, 1<<20)
			bytes := int64(2 << 30)
			if rank == 3 {
				bytes = last
			}
			row := recording.AddAlloc(3*analyzetest.Second+rank*analyzetest.Ms, analyzetest.Us, (rank+1)<<40, bytes)
			row.Pid, row.Tid = pid, pid
		}
	}
	return Case{
		Fires:    func(recording *analyzetest.TestRecording) { add(recording, 3<<30) },
		Misses:   func(recording *analyzetest.TestRecording) { add(recording, 2<<30+200<<20) },
		Where:    fmt.Sprintf("rank %d (pid %d)", 3, 203),
		Severity: "info",
	}
}

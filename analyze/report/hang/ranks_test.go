package hang_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// rankJob makes recordings of a job, one for each host.
type rankJob struct {
	t       *testing.T
	tapes   []*analyzetest.TestRecording
	ranks   []*simRank
	perHost int
	group   int64 // of the next calls
}

// simRank is a process of a rankJob.
type simRank struct {
	recording *analyzetest.TestRecording
	pid       int32
	rank      int
	comms     map[int64]*simCommunicator
}

type simCommunicator struct {
	row  analyzetest.CommunicatorRow
	next int64
}

// newRankJob makes the processes of a job with some ranks on each host. skip are hosts that are not recorded.
func newRankJob(t *testing.T, ranks, perHost int, skip ...int) *rankJob {
	j := &rankJob{t: t, perHost: perHost}
	for host := range (ranks + perHost - 1) / perHost {
		recording := analyzetest.NewTestRecording(t)
		recording.Meta.Host, recording.Meta.Complete = fmt.Sprintf("node%d", host+1), format.CompleteYes
		recording.Meta.Calls = map[string]format.CallCount{"launch": {Seen: 1, Recorded: 1}}
		recording.AddStack(1, "all_reduce", "train_step", "main")
		recording.AddStack(2, "log_stats", "main")
		j.tapes = append(j.tapes, recording)
	}
	for rank := range ranks {
		r := &simRank{
			recording: j.tapes[rank/perHost],
			pid:       int32(100 + rank),
			rank:      rank,
			comms:     make(map[int64]*simCommunicator),
		}
		r.recording.AddRow(format.Row{
			Kind: format.KindProcess, Name: "train", Pid: r.pid, StartNs: analyzetest.Epoch, Device: -1,
			Message: `{"exe":"/app/train"}`,
		})
		r.recording.AddIdentity(r.pid, analyzetest.RankIdentity(rank, ranks, "llama"), nil)
		j.ranks = append(j.ranks, r)
	}
	for _, host := range skip {
		j.tapes[host] = nil
	}
	return j
}

// communicator makes a communicator of ranks.
func (j *rankJob) communicator(id int64, name string, ranks ...int) {
	for i, rank := range ranks {
		r := j.ranks[rank]
		row := analyzetest.CommunicatorRow{
			ID: id, Ptr: id + int64(rank), Pid: r.pid, Rank: int32(i), Size: int32(len(ranks)), Name: name,
		}
		r.recording.AddCommunicator(analyzetest.Second, row)
		r.comms[id] = &simCommunicator{row: row, next: 1}
	}
}

// call makes ranks call an operation of 1 Mi elements on a communicator at a time.
func (j *rankJob) call(at int64, id int64, function string, ranks ...int) {
	for _, rank := range ranks {
		c := j.ranks[rank].comms[id]
		row := j.ranks[rank].recording.AddCollective(
			at+int64(rank)*analyzetest.Us, 20*analyzetest.Us, function, c.row, c.next, 1<<20,
		)
		row.Stream, row.Group = 7+id%7, j.group
		row.StackID, row.StackStatus = 1, format.StackComplete
		if function != "ncclAllReduce" {
			row.StackID, row.Reduction = 2, ""
		}
		c.next++
	}
}

// steps makes ranks call n operations, ten a second, from a time on. Each second ends with a wait for the stream.
func (j *rankJob) steps(at, id int64, function string, n int, ranks ...int) {
	for i := range n {
		from := at + int64(i)*100*analyzetest.Ms
		j.call(from, id, function, ranks...)
		if i%10 != 9 {
			continue
		}
		for _, rank := range ranks {
			s := j.ranks[rank].recording.AddCall(
				format.KindSync,
				"cuStreamSynchronize",
				from+analyzetest.Ms,
				50*analyzetest.Ms,
			)
			s.Pid, s.Tid, s.Stream = j.ranks[rank].pid, j.ranks[rank].pid, 7+id%7
		}
	}
}

// wait makes the hosts of ranks wait for the stream of a communicator to the end.
func (j *rankJob) wait(at, id int64, ranks ...int) {
	for _, rank := range ranks {
		r := j.ranks[rank].recording.AddOpenCall(
			j.ranks[rank].pid,
			j.ranks[rank].pid,
			at,
			format.KindSync,
			"cuStreamSynchronize",
		)
		r.Stream, r.StackID, r.StackStatus = 7+id%7, 1, format.StackComplete
	}
}

// hostStack makes the host of a rank read a file at the end.
func (j *rankJob) hostStack(at int64, rank int) {
	r := j.ranks[rank]
	r.recording.AddStack(3, "read_shard", "main")
	r.recording.AddThreadState(r.pid, r.pid, 59*analyzetest.Second, 59*analyzetest.Second-at, format.StateSleeping,
		format.WaitFact{SystemCall: "read", When: format.WhenEnd}, 3)
}

// job writes the recordings.
func (j *rankJob) job() *job.Job {
	j.t.Helper()
	var paths []string
	for _, recording := range j.tapes {
		if recording != nil {
			recording.WriteAndOpen()
			paths = append(paths, recording.Path)
		}
	}
	made, err := job.Open(paths, job.Options{})
	if err != nil {
		j.t.Fatal(err)
	}
	return made
}

// ranksFrom returns the numbers from..to-1 without some.
func ranksFrom(from, to int, without ...int) (list []int) {
	for i := from; i < to; i++ {
		if !slices.Contains(without, i) {
			list = append(list, i)
		}
	}
	return list
}

// run returns the report of the job.
func (j *rankJob) run() *report.Report {
	j.t.Helper()
	r, err := hang.RunJob(j.job(), query.Options{Top: 20})
	if err != nil {
		j.t.Fatal(err)
	}
	return r
}

const world = int64(0xfa93daea854b060)

func TestAMissingRank(t *testing.T) {
	testclass.Unit(t)
	j := newRankJob(t, 8, 4)
	all := ranksFrom(0, 8)
	j.communicator(world, "", all...)
	j.steps(2*analyzetest.Second, world, "ncclAllReduce", 100, all...)
	others := ranksFrom(0, 8, 6)
	j.call(13*analyzetest.Second, world, "ncclAllReduce", others...)
	j.wait(13*analyzetest.Second+analyzetest.Ms, world, others...)
	j.hostStack(13*analyzetest.Second, 6)
	analyzetest.CompareGoldenReports(t, j.run(), "ranksmissing", 120)
}

func TestACallMore(t *testing.T) {
	testclass.Unit(t)
	j := newRankJob(t, 4, 4)
	all := ranksFrom(0, 4)
	j.communicator(world, "", all...)
	j.steps(2*analyzetest.Second, world, "ncclAllReduce", 20, all...)
	j.call(5*analyzetest.Second, world, "ncclAllGather", 2)
	j.call(5*analyzetest.Second+analyzetest.Ms, world, "ncclAllReduce", all...)
	j.call(5*analyzetest.Second+2*analyzetest.Ms, world, "ncclReduceScatter", 0, 1, 3)
	j.wait(5*analyzetest.Second+3*analyzetest.Ms, world, all...)
	analyzetest.CompareGoldenReports(t, j.run(), "ranksmismatch", 120)
}

func TestADeadRankOfManyCommunicators(t *testing.T) {
	testclass.Unit(t)
	const ranks, perHost, dead = 256, 8, 133
	j := newRankJob(t, ranks, perHost, 11)
	for host := range ranks / perHost {
		tensor := ranksFrom(host*perHost, (host+1)*perHost)
		j.communicator(0x1000+int64(host)<<20, fmt.Sprintf("TP %d-%d", tensor[0], tensor[7]), tensor...)
	}
	for i := range perHost {
		var data []int
		for host := range ranks / perHost {
			data = append(data, host*perHost+i)
		}
		j.communicator(0x9000_0000+int64(i)<<20, fmt.Sprintf("DP %d", i), data...)
	}
	at := 2 * analyzetest.Second
	tensor := func(without ...int) {
		for host := range ranks / perHost {
			j.call(
				at,
				0x1000+int64(host)<<20,
				"ncclAllReduce",
				ranksFrom(host*perHost, (host+1)*perHost, without...)...)
		}
		at += 10 * analyzetest.Ms
	}
	data := func(without ...int) {
		for i := range perHost {
			for host := range ranks / perHost {
				if len(without) == 0 || host != without[0]/perHost {
					j.call(at, 0x9000_0000+int64(i)<<20, "ncclReduceScatter", host*perHost+i)
				}
			}
		}
		at += 10 * analyzetest.Ms
	}
	for range 3 {
		tensor()
		data()
	}
	j.ranks[dead].recording.AddXid(
		at,
		5,
		j.ranks[dead].pid,
		79,
		format.XidFact{Process: "train", Sources: []string{"kmsg"}},
	)
	j.ranks[dead].recording.AddExit(j.ranks[dead].pid, at+analyzetest.Ms)
	at += 10 * analyzetest.Ms
	tensor(dead)
	data(dead)
	r := j.run()
	analyzetest.CompareGoldenReports(t, r, "ranksdead", 120)
}

func TestTwoOrders(t *testing.T) {
	testclass.Unit(t)
	j := newRankJob(t, 2, 2)
	j.communicator(world, "A", 0, 1)
	j.communicator(7*world, "B", 0, 1)
	j.steps(2*analyzetest.Second, world, "ncclAllReduce", 10, 0, 1)
	at := 5 * analyzetest.Second
	j.call(at, world, "ncclAllReduce", 0)
	j.call(at, 7*world, "ncclAllReduce", 1)
	j.call(at+analyzetest.Ms, 7*world, "ncclAllReduce", 0)
	j.call(at+analyzetest.Ms, world, "ncclAllReduce", 1)
	j.wait(at+2*analyzetest.Ms, world, 0, 1)
	j.wait(at+2*analyzetest.Ms, 7*world, 0, 1)
	analyzetest.CompareGoldenReports(t, j.run(), "rankscycle", 120)
}

// TestUnknownGroupsHaveNoOrder has the calls of TestTwoOrders on one stream, in groups that may be unknown: then both
// orders may be right. A collective that a rank did not call is still found.
func TestUnknownGroupsHaveNoOrder(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		group   int64
		missing bool
		want    string
	}{
		{0, false, "ranks 0-1 wait for each other"},
		{format.GroupUnknown, false, "does not end"},
		{0, true, "has waited for rank 1"},
		{format.GroupUnknown, true, "has waited for rank 1"},
	} {
		j := newRankJob(t, 2, 2)
		j.group = c.group
		j.communicator(world, "A", 0, 1)
		j.communicator(world+7, "B", 0, 1) // on the same stream
		j.steps(2*analyzetest.Second, world, "ncclAllReduce", 10, 0, 1)
		at := 5 * analyzetest.Second
		j.call(at, world, "ncclAllReduce", 0)
		if !c.missing {
			j.call(at, world+7, "ncclAllReduce", 1)
			j.call(at+analyzetest.Ms, world+7, "ncclAllReduce", 0)
			j.call(at+analyzetest.Ms, world, "ncclAllReduce", 1)
		}
		j.wait(at+2*analyzetest.Ms, world, 0, 1)
		if verdict := fmt.Sprint(j.run().Facts[0].Value); !strings.Contains(verdict, c.want) {
			t.Errorf("group %d, missing %v: %s", c.group, c.missing, verdict)
		}
	}
}

func TestNoHang(t *testing.T) {
	testclass.Unit(t)
	j := newRankJob(t, 4, 2, 1)
	all := ranksFrom(0, 4)
	j.communicator(world, "", all...)
	j.steps(2*analyzetest.Second, world, "ncclAllReduce", 580, all...)
	r := j.run()
	if text := fmt.Sprint(
		r.Facts[0].Value,
	); text != "no hang: all recorded ranks call new operations; 2 of 4 ranks recorded" {
		t.Error(text)
	}
	// A job that has ended its work stands still, and no rank is accused.
	j = newRankJob(t, 4, 2)
	j.communicator(world, "", all...)
	j.steps(2*analyzetest.Second, world, "ncclAllReduce", 100, all...)
	if r = j.run(); !strings.HasPrefix(fmt.Sprint(r.Facts[0].Value), "no hang is known: 4 ranks made no new call") {
		t.Error(r.Facts[0].Value)
	}
}

// TestSplitThatHangs names the rank that does not call ncclCommSplit, for which the other ranks wait in the call.
func TestSplitThatHangs(t *testing.T) {
	testclass.Unit(t)
	j := newRankJob(t, 4, 2)
	j.communicator(world, "", 0, 1, 2, 3)
	j.steps(2*analyzetest.Second, world, "ncclAllReduce", 20, 0, 1, 2, 3)
	for _, rank := range []int{0, 1, 3} {
		r := j.ranks[rank]
		row := r.recording.AddOpenCall(r.pid, r.pid, 5*analyzetest.Second, format.KindCommunicatorCall, "ncclCommSplit")
		row.Communicator, row.CommunicatorRank, row.CommunicatorSize = world, int32(rank), 4
		row.StackID, row.StackStatus = 1, format.StackComplete
	}
	j.hostStack(5*analyzetest.Second, 2)
	r := j.run()
	hangs, fault := fact(r, "hangs"), fact(r, "fault")
	if !strings.Contains(hangs, "ncclCommSplit of communicator") || !strings.Contains(hangs, "has waited for rank 2") ||
		!strings.Contains(fault, "rank 2") {
		t.Errorf("the report says\n\t%s\n\t%s\nwant that ncclCommSplit waits for rank 2", hangs, fault)
	}
}

// TestAbortByAWatchdog names the rank that never called the operation, although the others have aborted the
// communicator, and maybe ended.
func TestAbortByAWatchdog(t *testing.T) {
	testclass.Unit(t)
	for _, ends := range []bool{false, true} {
		j := newRankJob(t, 4, 2)
		all := ranksFrom(0, 4)
		j.communicator(world, "", all...)
		j.steps(2*analyzetest.Second, world, "ncclAllReduce", 20, all...)
		others := ranksFrom(0, 4, 2)
		j.call(5*analyzetest.Second, world, "ncclAllReduce", others...)
		j.hostStack(5*analyzetest.Second, 2)
		for _, rank := range others {
			r := j.ranks[rank]
			row := r.recording.AddCall(
				format.KindSync,
				"cuStreamSynchronize",
				5*analyzetest.Second+analyzetest.Ms,
				30*analyzetest.Second,
			)
			row.Pid, row.Tid, row.Stream, row.Result = r.pid, r.pid, 7+world%7, 0
			row.StackID, row.StackStatus = 1, format.StackComplete
			c := r.comms[world].row
			abort := r.recording.AddCall(
				format.KindCommunicatorCall,
				"ncclCommAbort",
				35*analyzetest.Second,
				analyzetest.Ms,
			)
			abort.Pid, abort.Tid, abort.Ptr = r.pid, r.pid+1000, c.Ptr
			abort.Communicator, abort.CommunicatorRank, abort.CommunicatorSize = c.ID, c.Rank, c.Size
			c.Fact.End, c.Fact.EndNs = format.CommunicatorAborted, analyzetest.Epoch+35*analyzetest.Second
			r.recording.AddCommunicator(analyzetest.Second, c)
			if ends {
				r.recording.AddExit(r.pid, 36*analyzetest.Second)
			}
		}
		r := j.run()
		if hangs, fault := fact(r, "hangs"), fact(r, "fault"); !strings.Contains(hangs, "for rank 2") ||
			!strings.Contains(fault, "rank 2") {
			t.Errorf("ends=%v: the report says\n\t%s\n\t%s\nwant rank 2", ends, hangs, fault)
		}
	}
}

// TestAbortAtTheEnd accuses no rank of a job that aborts its communicators when its operations have ended.
func TestAbortAtTheEnd(t *testing.T) {
	testclass.Unit(t)
	j := newRankJob(t, 4, 2)
	all := ranksFrom(0, 4)
	j.communicator(world, "", all...)
	j.steps(2*analyzetest.Second, world, "ncclAllReduce", 20, all...)
	for _, rank := range all {
		c := j.ranks[rank].comms[world].row
		c.Fact.End, c.Fact.EndNs = format.CommunicatorAborted, analyzetest.Epoch+6*analyzetest.Second
		j.ranks[rank].recording.AddCommunicator(analyzetest.Second, c)
	}
	if fault := fact(j.run(), "fault"); fault != "" {
		t.Errorf("the report says %q, want no fault", fault)
	}
}

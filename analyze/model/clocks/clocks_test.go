package clocks_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/model/clocks"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// simJob is a job whose hosts have clocks with known differences.
type simJob struct {
	t      *testing.T
	random *rand.Rand
	hosts  []*simHost
	ranks  []*simRank
	nowNs  int64 // true time from the start
	number map[int64]int64
}

// simHost is a host. Its clock shows true time + aheadNs + time × ppm / 10^6.
type simHost struct {
	recording *analyzetest.TestRecording
	aheadNs   int64
	ppm       int64
}

func (h *simHost) clock(trueNs int64) int64 { return trueNs + h.offset(trueNs) }

func (h *simHost) offset(trueNs int64) int64 { return h.aheadNs + trueNs/1_000_000*h.ppm }

type simRank struct {
	host *simHost
	pid  int32
	rank int32
	// groups is the number of the last group of the thread.
	groups int64
}

const (
	jobNs     = 30 * analyzetest.Second
	maxAhead  = 50 * analyzetest.Ms
	worldSize = 64
)

// newSimJob returns a job with a random clock on each host. With ntp, each clock states an error that holds.
func newSimJob(t *testing.T, seed uint64, hosts, perHost int, ntp bool) *simJob {
	j := &simJob{t: t, random: rand.New(rand.NewPCG(seed, 7)), number: make(map[int64]int64)}
	for i := range hosts {
		recording := analyzetest.NewTestRecording(t)
		h := &simHost{
			recording: recording,
			aheadNs:   j.random.Int64N(2*maxAhead) - maxAhead,
			ppm:       j.random.Int64N(100) - 50,
		}
		recording.Meta.Host, recording.Meta.BootID, recording.Meta.Complete = fmt.Sprintf(
			"node%d",
			i,
		), fmt.Sprint(
			i,
		), format.CompleteYes
		recording.Meta.EndNs = analyzetest.Epoch + h.clock(jobNs)
		recording.Meta.StartNs = analyzetest.Epoch + h.clock(0)
		recording.Path = filepath.Join(t.TempDir(), fmt.Sprintf("node%d.parquet", i))
		if ntp {
			h.addSnapshot(j.random, 0)
			h.addSnapshot(j.random, jobNs)
		}
		j.hosts = append(j.hosts, h)
		for range perHost {
			j.addRank(h)
		}
	}
	return j
}

// addSnapshot adds clocks with an error of NTP of at most 5 ms, which the host states.
func (h *simHost) addSnapshot(random *rand.Rand, trueNs int64) {
	stated := 5 * analyzetest.Ms
	real := analyzetest.Epoch + trueNs + random.Int64N(2*stated) - stated
	h.recording.Meta.Clocks = append(h.recording.Meta.Clocks, format.ClockSnapshot{
		MonotonicNs: analyzetest.Epoch + h.clock(trueNs) - h.recording.Meta.ClockOffsetNs, RealtimeNs: real,
		Sync: &format.ClockSync{Synchronized: true, MaxErrorNs: stated},
	})
}

func (j *simJob) addRank(h *simHost) {
	r := &simRank{host: h, pid: int32(100 + len(j.ranks)), rank: int32(len(j.ranks))}
	h.recording.AddRow(
		format.Row{Kind: format.KindProcess, Name: "train", Pid: r.pid, StartNs: analyzetest.Epoch, Device: -1},
	)
	j.ranks = append(j.ranks, r)
}

// communicator returns the communicator of a rank.
func (j *simJob) communicator(r *simRank, numbering string) analyzetest.CommunicatorRow {
	return analyzetest.CommunicatorRow{
		ID: 99, Ptr: 0x5000, Pid: r.pid, Rank: r.rank, Size: int32(len(j.ranks)),
		Fact: format.CommunicatorFact{Numbering: numbering},
	}
}

// addCommunicators adds the communicator of all ranks.
func (j *simJob) addCommunicators(numbering string) {
	for _, r := range j.ranks {
		r.host.recording.AddCommunicator(r.host.clock(0), j.communicator(r, numbering))
	}
}

// functions are those of random jobs. Send and Recv are pairs.
var functions = []string{
	"ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclReduce", "ncclSend", "ncclAllReduce",
}

// step makes all ranks call an operation, and the hosts of most ranks wait for it.
func (j *simJob) step(function string, lateNs int64) {
	root := int32(j.random.IntN(len(j.ranks)))
	peer := (root + 1 + int32(j.random.IntN(len(j.ranks)-1))) % int32(len(j.ranks))
	var begun int64
	starts := make([]int64, len(j.ranks))
	for i := range j.ranks {
		starts[i] = j.nowNs + j.random.Int64N(lateNs)
		begun = max(begun, starts[i])
	}
	series := int64(-1)
	if function == "ncclSend" {
		series = int64(root)*worldSize + int64(peer)
	}
	j.number[series]++
	for i, r := range j.ranks {
		end, name := begun, function
		switch function {
		case "ncclBroadcast": // ends early where it can
			end = max(starts[i], starts[root])
		case "ncclReduce":
			if r.rank != root {
				end = starts[i]
			}
		case "ncclSend":
			if r.rank != root && r.rank != peer {
				continue
			}
			if r.rank == peer {
				name, end = "ncclRecv", max(starts[i], starts[root])
			} else {
				end = starts[i]
			}
		}
		j.call(r, name, root, peer, j.number[series], starts[i], end+20*analyzetest.Us+j.random.Int64N(analyzetest.Ms))
	}
	j.nowNs = begun + 2*analyzetest.Ms + j.random.Int64N(20*analyzetest.Ms)
}

// call adds the rows of an operation of a rank, and a wait that ends at or after its end.
func (j *simJob) call(r *simRank, name string, root, peer int32, number, startNs, endNs int64) {
	entry := 5 * analyzetest.Us
	row := r.host.recording.AddCollective(r.host.clock(startNs), entry, name, j.communicator(r, ""), number, 256)
	row.Stream = 7
	switch name {
	case "ncclBroadcast", "ncclReduce":
		row.Root = root
	case "ncclSend":
		row.Root = peer
	case "ncclRecv":
		row.Root = root
	}
	given := startNs + entry
	if j.random.IntN(2) == 0 { // in a group
		r.groups++
		row.Group = r.groups
		given += 10 * analyzetest.Us
		end := r.host.recording.AddCall(
			format.KindCommunicatorCall,
			"ncclGroupEnd",
			r.host.clock(given),
			3*analyzetest.Us,
		)
		end.Pid, end.Tid, end.Group = r.pid, r.pid, r.groups
		given += 3 * analyzetest.Us
	}
	waitNs := given + j.random.Int64N(analyzetest.Ms)
	sync := r.host.recording.AddCall(format.KindSync, "cuStreamSynchronize", r.host.clock(waitNs),
		max(endNs, waitNs+analyzetest.Us)-waitNs)
	sync.Pid, sync.Tid, sync.Stream = r.pid, r.pid, 7
	if j.random.IntN(4) == 0 {
		sync.Name, sync.Stream, sync.Device = "cuCtxSynchronize", 0, 0
	}
}

// read writes the recordings and returns the bounds.
func (j *simJob) read() *clocks.Clocks {
	j.t.Helper()
	var paths []string
	for _, h := range j.hosts {
		h.recording.WriteAndOpen()
		paths = append(paths, h.recording.Path)
	}
	made, err := job.Open(paths, job.Options{})
	if err != nil {
		j.t.Fatal(err)
	}
	c, err := clocks.Read(made)
	if err != nil {
		j.t.Fatal(err)
	}
	return c
}

// check compares all bounds with the true differences, and returns their widths.
func (j *simJob) check(c *clocks.Clocks) (widths []int64) {
	j.t.Helper()
	for a, from := range j.hosts {
		for b, to := range j.hosts {
			o := c.Offset(a, b)
			truth := to.offset(jobNs) - from.offset(jobNs)
			switch {
			case o.Source == clocks.SourceUnknown:
			case truth < o.LowNs || truth > o.HighNs:
				j.t.Errorf("hosts %d, %d: %d is not in %d to %d by %s", a, b, truth, o.LowNs, o.HighNs, o.Source)
			case a != b:
				widths = append(widths, o.HighNs-o.LowNs)
			}
		}
	}
	return widths
}

// TestBoundsOfRandomJobs makes random jobs, whose clocks differ by up to 100 ms and drift. The true
// difference is always inside the bounds.
func TestBoundsOfRandomJobs(t *testing.T) {
	testclass.Lab(t, "lab")
	var widths []int64
	for seed := range uint64(40) {
		j := newSimJob(t, seed, 2+int(seed%4), 1+int(seed%3), seed%2 == 0)
		j.addCommunicators("")
		late := []int64{50 * analyzetest.Us, analyzetest.Ms, 20 * analyzetest.Ms}[seed%3]
		for j.nowNs < jobNs-analyzetest.Second {
			j.step(functions[j.random.IntN(len(functions))], late)
		}
		found := j.check(j.read())
		if len(found) != len(j.hosts)*(len(j.hosts)-1) {
			t.Errorf("seed %d: %d bounds of %d hosts", seed, len(found), len(j.hosts))
		}
		widths = append(widths, found...)
	}
	slices.Sort(widths)
	t.Logf("width of %d bounds: median %.3f ms, largest %.3f ms", len(widths),
		float64(widths[len(widths)/2])/1e6, float64(widths[len(widths)-1])/1e6)
	if median := widths[len(widths)/2]; median > 10*analyzetest.Ms {
		t.Errorf("median width %d ns", median)
	}
}

// TestRelativeNumbers checks that numbers that are relative bound nothing, and without NTP nothing is
// known.
func TestRelativeNumbers(t *testing.T) {
	testclass.Unit(t)
	j := newSimJob(t, 1, 2, 1, false)
	j.addCommunicators(format.NumberingRelative)
	for range 20 {
		j.step("ncclAllReduce", analyzetest.Ms)
	}
	if o := j.read().Offset(0, 1); o.Source != clocks.SourceUnknown {
		t.Errorf("%+v", o)
	}
}

// TestEndsThatAreNone checks that ends that NCCL did not reach by itself are no evidence: each of
// these would make a wrong bound.
func TestEndsThatAreNone(t *testing.T) {
	testclass.Unit(t)
	early := func(j *simJob) { // rank 1 waits without rank 0
		j.call(j.ranks[1], "ncclAllReduce", -1, -1, j.number[-1]+1, j.nowNs, j.nowNs+analyzetest.Ms)
		j.nowNs += analyzetest.Second
		j.call(j.ranks[0], "ncclAllReduce", -1, -1, j.number[-1]+1, j.nowNs, j.nowNs+analyzetest.Ms)
	}
	for name, fault := range map[string]func(j *simJob){
		"aborted": early,
		"captured": func(j *simJob) {
			h := j.ranks[1].host
			for at, name := range []string{"cuStreamBeginCapture_v2", "cuStreamEndCapture"} {
				r := h.recording.AddCall(format.KindAPI, name, h.clock(j.nowNs)+int64(2*at-1)*30*analyzetest.Us, 1000)
				r.Pid = j.ranks[1].pid
			}
			early(j)
			j.number[-1]++
			j.step("ncclAllReduce", analyzetest.Ms)
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := newSimJob(t, 3, 2, 1, false)
			j.addCommunicators("")
			for range 20 {
				j.step("ncclAllReduce", analyzetest.Ms)
			}
			fault(j)
			c := j.read()
			if widths := j.check(c); len(widths) != 2 || c.Problem() != "" {
				t.Errorf("widths %v, %s", widths, c.Problem())
			}
		})
	}
}

// TestAClockThatStepped checks that a clock that stepped makes its bounds contradict each other, and
// nothing is known about it.
func TestAClockThatStepped(t *testing.T) {
	testclass.Unit(t)
	j := newSimJob(t, 2, 3, 1, false)
	j.addCommunicators("")
	for range 20 {
		j.step("ncclAllReduce", analyzetest.Ms)
	}
	j.hosts[2].aheadNs += analyzetest.Second
	for range 20 {
		j.step("ncclAllReduce", analyzetest.Ms)
	}
	c := j.read()
	if o := c.Offset(0, 2); o.Source != clocks.SourceUnknown {
		t.Errorf("%+v", o)
	}
	if p := c.Problem(); !strings.HasPrefix(p, "the bounds of their clocks contradict each other (") ||
		!strings.Contains(p, "node2") {
		t.Error(p)
	}
}

// TestNTPAlone checks that NTP alone bounds hosts whose ranks have no common operation, with the
// errors of both.
func TestNTPAlone(t *testing.T) {
	testclass.Unit(t)
	j := newSimJob(t, 5, 3, 1, true)
	j.hosts[2].recording.Meta.Clocks[1].Sync.Synchronized = false
	j.hosts[2].recording.Meta.Clocks[0].Sync = nil
	j.addCommunicators("")
	c := j.read()
	widths := j.check(c)
	if len(widths) != 2 || widths[0] < 20*analyzetest.Ms || widths[0] > 21*analyzetest.Ms {
		t.Errorf("widths %v", widths)
	}
	if o := c.Offset(0, 1); o.Source != clocks.SourceNTP {
		t.Errorf("%+v", o)
	}
	if o := c.Offset(0, 2); o.Source != clocks.SourceUnknown {
		t.Errorf("%+v", o)
	}
	if o := c.Offset(2, 2); o != (job.Offset{Source: clocks.SourceSameHost}) {
		t.Errorf("%+v", o)
	}
}

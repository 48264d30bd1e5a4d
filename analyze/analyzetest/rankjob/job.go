package rankjob

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/format"
)

// Kind names the part of a step that a fault makes slow.
type Kind uint8

// Kinds of faults.
const (
	SlowHost   Kind = iota // augment at train.py:88 runs longer on the CPU
	SlowGPU                // the same kernels run longer
	SlowCopies             // the copy of the batch takes longer
	MoreWork               // more kernels
	// SlowNetwork makes each operation of the rank's communicator slower by ns: of its tensor-parallel one, if it has one.
	SlowNetwork
)

// Fault makes a rank slow from a step on, by ns a step.
type Fault struct {
	Kind     Kind
	Rank     int
	FromStep int
	Ns       int64
}

// Spec describes a job. Its ranks reduce their gradients in Buckets operations a step, and wait for the last one.
type Spec struct {
	// TensorParallel is the number of consecutive ranks that share a communicator, and reduce twice a step in it. The
	// gradients are reduced by the ranks with equal places among them. 0: all ranks share one communicator.
	TensorParallel int
	Seed           uint64
	Ranks, Hosts   int // the ranks are spread evenly; 0 hosts means 1
	Steps          int
	Buckets        int // 0 means 2
	NoGPUTimes     bool
	NoHostRows     bool
	// SkewNs is added to the clock of each host after the first, once for each host before it.
	SkewNs int64
	Faults []Fault
}

// Times of a step without faults, ns. The computed part varies by 2 %.
const (
	hostNs     = 2 * analyzetest.Ms
	copyNs     = analyzetest.Ms
	kernelNs   = 12 * analyzetest.Ms
	kernels    = 12
	transferNs = 400 * analyzetest.Us
	batchBytes = 64 * analyzetest.Mib
	bucket     = 25 * analyzetest.Mib / 4 // elements of float32
)

// CommunicatorID is the identity of the job's communicator. Those of tensor-parallel jobs follow.
const CommunicatorID = int64(0x7a93daea854b060b)

// communicatorPtr is its address in each process.
const communicatorPtr = 0x5000

// communicator is a communicator of the job.
type communicator struct {
	id, ptr int64
	name    string
	ranks   []*rank
	isSlow  bool // SlowNetwork acts on it
}

// rank is a rank while the job runs.
type rank struct {
	number, host int
	program      *gpuprogram.Job
	process      *gpuprogram.JobProcess
	thread       *gpuprogram.JobThread
	compute, net *gpuprogram.JobStream
	ready        int64 // event of the thread
	done         int64
	sequences    map[int64]int64 // last number by address of the communicator
}

// Recordings runs the job and returns one recording for each rank, ordered by rank.
func (s Spec) Recordings(t testing.TB) []*analyzetest.TestRecording {
	t.Helper()
	ranks := make([]*rank, s.Ranks)
	for i := range ranks {
		ranks[i] = s.newRank(i, s.newProgram(uint64(i)), 0)
	}
	all := s.communicators(ranks)
	s.run(ranks, all)
	list := make([]*analyzetest.TestRecording, s.Ranks)
	for i, r := range ranks {
		list[i] = s.finish(t, ranks[i:i+1], all, r.host, fmt.Sprintf("rank%d", r.number))
	}
	return list
}

// Recording runs the job on one host and returns one recording of all ranks.
func (s Spec) Recording(t testing.TB) *analyzetest.TestRecording {
	t.Helper()
	s.Hosts = 1
	ranks, program := make([]*rank, s.Ranks), s.newProgram(0)
	for i := range ranks {
		ranks[i] = s.newRank(i, program, int32(i))
	}
	all := s.communicators(ranks)
	s.run(ranks, all)
	return s.finish(t, ranks, all, 0, "job")
}

// communicators are those of a job.
type communicators struct{ tensor, data []*communicator }

// each returns all communicators.
func (c *communicators) each() []*communicator { return slices.Concat(c.tensor, c.data) }

// communicators makes the communicators of the job.
func (s *Spec) communicators(ranks []*rank) *communicators {
	c := new(communicators)
	if s.TensorParallel == 0 {
		c.data = []*communicator{{id: CommunicatorID, ptr: communicatorPtr, name: "default_pg", ranks: ranks}}
	} else {
		for place := range s.TensorParallel {
			data := &communicator{name: fmt.Sprintf("DP %d", place), ptr: communicatorPtr + 0x100}
			for i := place; i < len(ranks); i += s.TensorParallel {
				data.ranks = append(data.ranks, ranks[i])
			}
			c.data = append(c.data, data)
		}
		for i := 0; i < len(ranks); i += s.TensorParallel {
			c.tensor = append(c.tensor, &communicator{
				name: fmt.Sprintf(
					"TP %d",
					i/s.TensorParallel,
				),
				ptr:   communicatorPtr,
				ranks: ranks[i:][:s.TensorParallel],
			})
		}
	}
	for i, k := range c.each() {
		k.id = CommunicatorID + int64(i)
		for _, f := range s.Faults {
			isItsKind := s.TensorParallel == 0 || i < len(c.tensor)
			isMember := slices.ContainsFunc(k.ranks, func(r *rank) bool { return r.number == f.Rank })
			k.isSlow = k.isSlow || f.Kind == SlowNetwork && isItsKind && isMember
		}
	}
	return c
}

// run runs the steps of the job.
func (s *Spec) run(ranks []*rank, all *communicators) {
	buckets := cmp.Or(s.Buckets, 2)
	for step := range s.Steps {
		parts := 1
		if len(all.tensor) > 0 {
			parts = 2
		}
		for part := range parts {
			for _, r := range ranks {
				if part == 0 {
					s.prepare(r, step)
				}
				s.compute(r, step, parts)
			}
			for _, c := range all.tensor {
				s.reduce(c, step)
				for _, r := range c.ranks {
					r.thread.RecordEvent(r.net, r.done)
					r.thread.WaitEvent(r.compute, r.done)
				}
			}
		}
		for range buckets {
			for _, c := range all.data {
				s.reduce(c, step)
			}
		}
		for _, r := range ranks {
			r.thread.Line(112)
			r.thread.Synchronize(r.net)
		}
	}
}

func (s *Spec) newProgram(i uint64) *gpuprogram.Job {
	p := gpuprogram.NewJob(s.Seed*1000+i, gpuprogram.Plan{Full: true})
	if !s.NoHostRows {
		p.RecordHost(gpuprogram.HostRecorder{})
	}
	return p
}

func (s *Spec) newRank(i int, p *gpuprogram.Job, device int32) *rank {
	r := &rank{number: i, host: i * max(1, s.Hosts) / s.Ranks, program: p, process: p.Process(device)}
	r.thread = r.process.Thread()
	r.compute, r.net = r.process.Stream(), r.process.Stream()
	r.thread.Enter("/app/train.py", "main")
	r.thread.Line(20)
	r.ready, r.done = r.thread.NewEvent(), r.thread.NewEvent()
	r.sequences = make(map[int64]int64)
	return r
}

// extra returns how much longer a kind of work takes.
func (s *Spec) extra(r *rank, step int, k Kind) (ns int64) {
	for _, f := range s.Faults {
		if f.Kind == k && f.Rank == r.number && step >= f.FromStep {
			ns += f.Ns
		}
	}
	return ns
}

// vary changes a time by a few percent.
func (r *rank) vary(ns int64) int64 {
	return ns + int64(0.02*float64(ns)*r.program.Random().NormFloat64())
}

// prepare does the work of the host and copies the batch of a step.
func (s *Spec) prepare(r *rank, step int) {
	r.thread.Line(88)
	r.thread.Enter("/app/train.py", "augment")
	r.thread.Line(30)
	r.thread.Work(max(0, r.vary(hostNs+s.extra(r, step, SlowHost))))
	r.thread.Leave()
	r.thread.Line(95)
	r.thread.Copy(r.compute, activity.OpCopyToDevice, batchBytes, r.vary(copyNs+s.extra(r, step, SlowCopies)))
}

// compute launches one of some parts of the kernels of a step.
func (s *Spec) compute(r *rank, step, parts int) {
	r.thread.Line(100)
	more := s.extra(r, step, MoreWork)
	count := kernels + kernels*more/kernelNs
	each := r.vary(kernelNs+s.extra(r, step, SlowGPU)+more) / count
	for range count / int64(parts) {
		r.thread.Launch(r.compute, "gemm", 64, each)
	}
	r.thread.RecordEvent(r.compute, r.ready)
}

// reduce runs one AllReduce on the ranks of a communicator. It begins on a rank when its work before is done, and ends
// on all together.
func (s *Spec) reduce(c *communicator, step int) {
	latest, transfer := int64(0), int64(transferNs)
	for _, f := range s.Faults {
		if c.isSlow && f.Kind == SlowNetwork && step >= f.FromStep {
			transfer += f.Ns
		}
	}
	arrivals := make([]int64, len(c.ranks))
	for i, r := range c.ranks {
		r.thread.Line(104)
		r.thread.WaitEvent(r.net, r.ready)
		row := r.thread.Call(format.KindCollective, "ncclAllReduce", analyzetest.Us)
		row.Communicator, row.CommunicatorRank, row.CommunicatorSize = c.id, int32(i), int32(len(c.ranks))
		row.Ptr, row.Value, row.Bytes = c.ptr, float64(bucket), 4*bucket
		r.sequences[c.ptr]++
		row.Sequence = r.sequences[c.ptr]
		row.DataType, row.Reduction, row.Root, row.Stream = "float32", "sum", format.NoRoot, r.net.Handle()
		arrivals[i] = max(r.thread.NowNs+2*analyzetest.Us, r.compute.EndNs(), r.net.EndNs())
		latest = max(latest, arrivals[i])
	}
	for i, r := range c.ranks {
		r.thread.Launch(r.net, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 16,
			latest+transfer-arrivals[i])
	}
}

// finish returns the recording of ranks of one program.
func (s *Spec) finish(
	t testing.TB, ranks []*rank, all *communicators, host int, name string,
) *analyzetest.TestRecording {
	recording := ranks[0].program.Recording(t, 0)
	recording.Meta.Host = fmt.Sprintf("node%d", host+1)
	recording.Meta.BootID = "boot-" + recording.Meta.Host
	recording.Path = filepath.Join(t.TempDir(), name+".parquet")
	var pids []int32
	open := make(map[int32]*format.Row)
	kept := recording.Rows[:0]
	for _, row := range recording.Rows {
		of := open[row.Pid]
		switch {
		case row.Kind == format.KindProcess && len(pids) < len(ranks):
			pids = append(pids, row.Pid)
		case row.Kind == format.KindCollective:
			open[row.Pid] = row
		case row.Kind == format.KindLaunch && strings.HasPrefix(row.Kernel, "nccl") && of != nil:
			of.DurNs = row.StartNs + row.DurNs + 200 - of.StartNs
			row.ParentStartNs = of.StartNs
		case s.NoGPUTimes && (row.Kind == format.KindProgress || row.Kind == format.KindChannel):
			continue
		}
		kept = append(kept, row)
	}
	recording.Rows = kept
	for i, r := range ranks {
		recording.AddIdentity(pids[i], analyzetest.RankIdentity(r.number, s.Ranks, "llama-ft"), nil)
		for _, c := range all.each() {
			if place := slices.Index(c.ranks, r); place >= 0 {
				recording.AddCommunicator(0, analyzetest.CommunicatorRow{
					ID: c.id, Ptr: c.ptr, Pid: pids[i], Rank: int32(place), Size: int32(len(c.ranks)), Name: c.name,
					Fact: format.CommunicatorFact{Library: "/usr/lib/libnccl.so.2", Version: "2.28.9"},
				})
			}
		}
	}
	if skew := s.SkewNs * int64(host); skew != 0 {
		shift(recording, skew)
	}
	return recording
}

// shift moves all times of a recording, as those of a host with another clock.
func shift(recording *analyzetest.TestRecording, ns int64) {
	recording.Meta.StartNs, recording.Meta.EndNs = recording.Meta.StartNs+ns, recording.Meta.EndNs+ns
	for _, row := range recording.Rows {
		if row.StartNs != 0 {
			row.StartNs += ns
		}
		if row.ParentStartNs != 0 {
			row.ParentStartNs += ns
		}
	}
}

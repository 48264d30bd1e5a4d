package rankjob

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
)

// Scale describes a job of many ranks whose last collective waits for one rank. Each recording is different.
type Scale struct {
	Ranks, RanksPerHost int
	// Steps is the number of steps. A step has LaunchesPerStep launches, an AllReduce and a wait for it.
	Steps, LaunchesPerStep int
	Missing                int // the rank that does not call the last AllReduce
}

// stepNs is the duration of a step, ns.
const stepNs = 20 * analyzetest.Ms

// scaleStream is the stream of all work.
const scaleStream = 7

// scaleSites is the number of call sites of launches.
const scaleSites = 200

// Write writes the recording of a rank to a file.
func (s *Scale) Write(t testing.TB, path string, rank int) {
	t.Helper()
	w, err := format.Create(path, format.Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	r := &scaleRank{Scale: s, random: rand.New(rand.NewPCG(uint64(rank), 1)), rank: rank, pid: int32(1000 + rank)}
	host := rank / s.RanksPerHost
	r.aheadNs = int64(host%50) * analyzetest.Ms
	meta := format.Meta{
		GpurecVersion: "v0.0.0-test", Command: []string{"gpurec", "record"}, Host: fmt.Sprintf("node%d", host),
		BootID: fmt.Sprint("boot", host), StartNs: analyzetest.Epoch + r.aheadNs,
		EndNs:         analyzetest.Epoch + r.aheadNs + int64(s.Steps+1)*stepNs + 60*analyzetest.Second,
		ClockOffsetNs: analyzetest.Epoch + r.aheadNs, Stacks: "fp", Attach: "uprobe_multi",
	}
	r.write = func(c format.Class, rows []format.Row) {
		if err := w.Write(c, rows); err != nil {
			t.Fatal(err)
		}
	}
	r.write(format.ClassFact, r.facts())
	r.write(format.ClassStack, r.stacks())
	for step := range s.Steps {
		r.step(step)
		if step%2000 == 1999 {
			if err := w.Rotate(meta); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.end()
	if err := w.Finish(meta); err != nil {
		t.Fatal(err)
	}
}

// scaleRank is a rank while its recording is written.
type scaleRank struct {
	*Scale
	random  *rand.Rand
	write   func(format.Class, []format.Row)
	rank    int
	pid     int32
	aheadNs int64 // of the clock of its host
	calls   []format.Row
}

// facts returns the process and its communicator.
func (r *scaleRank) facts() []format.Row {
	identity := fmt.Sprintf(
		`{"exe":"/app/train","identity":{"rank":%d,"world_size":%d,`+
			`"sources":{"rank":"env RANK","world_size":"env WORLD_SIZE"}}}`,
		r.rank, r.Ranks)
	return []format.Row{
		{Kind: format.KindProcess, Name: "train", Pid: r.pid, StartNs: r.at(0), Device: -1, Message: identity},
		{
			Kind: format.KindCommunicator, Pid: r.pid, StartNs: r.at(0), Ptr: communicatorPtr,
			Communicator: CommunicatorID, CommunicatorRank: int32(r.rank), CommunicatorSize: int32(r.Ranks),
			Message: `{"how":"init","numbering":"exact"}`,
		},
	}
}

// stacks returns a stack for each call site.
func (r *scaleRank) stacks() (rows []format.Row) {
	for i := range scaleSites {
		frames := make([]format.Frame, 30)
		for k := range frames {
			frames[k] = format.Frame{
				Func: fmt.Sprintf("function_%d_%d", i, k), Module: "/app/train", Addr: int64(k), Type: "native",
			}
		}
		rows = append(rows, format.Row{Kind: format.KindStack, StackID: int32(i + 1), Frames: frames})
	}
	return rows
}

// at returns a time on the clock of the host, Unix ns.
func (r *scaleRank) at(ns int64) int64 { return analyzetest.Epoch + r.aheadNs + ns }

// call returns a call of the rank.
func (r *scaleRank) call(kind, name string, at, dur int64) format.Row {
	return format.Row{
		Kind: kind, Name: name, StartNs: r.at(at), DurNs: dur, Pid: r.pid, Tid: r.pid, Stream: scaleStream,
		StackID: 1 + r.random.Int32N(scaleSites), StackStatus: format.StackComplete,
	}
}

// step adds the calls of a step.
func (r *scaleRank) step(step int) {
	from := int64(step) * stepNs
	for i := range r.LaunchesPerStep {
		at := from + int64(i)*15*analyzetest.Ms/int64(r.LaunchesPerStep) + r.random.Int64N(5000)
		c := r.call(format.KindLaunch, "cuLaunchKernel", at, 1000+r.random.Int64N(20000))
		c.Kernel, c.GridX, c.BlockX = fmt.Sprint("kernel", c.StackID%100), 128, 256
		r.calls = append(r.calls, c)
	}
	at := from + 15*analyzetest.Ms + r.random.Int64N(analyzetest.Ms)
	r.write(format.ClassCollective, []format.Row{r.allReduce(step+1, at)})
	wait := at + 50*analyzetest.Us
	r.calls = append(r.calls, r.call(format.KindSync, "cuStreamSynchronize", wait, from+17*analyzetest.Ms-wait))
	r.write(format.ClassCall, r.calls)
	r.calls = r.calls[:0]
}

// allReduce returns the call of the AllReduce with a number.
func (r *scaleRank) allReduce(number int, at int64) format.Row {
	c := r.call(format.KindCollective, "ncclAllReduce", at, 20*analyzetest.Us)
	c.Ptr, c.Communicator, c.CommunicatorRank = communicatorPtr, CommunicatorID, int32(r.rank)
	c.CommunicatorSize, c.Sequence, c.Root = int32(r.Ranks), int64(number), format.NoRoot
	c.Value, c.Bytes, c.DataType, c.Reduction = 1<<20, 4<<20, "float32", "sum"
	return c
}

// end adds the last AllReduce, for which all ranks but one wait to the end.
func (r *scaleRank) end() {
	if r.rank == r.Missing {
		return
	}
	at := int64(r.Steps) * stepNs
	r.write(format.ClassCollective, []format.Row{r.allReduce(r.Steps+1, at)})
	wait := r.call(format.KindSync, "cuStreamSynchronize", at+analyzetest.Ms, 60*analyzetest.Second)
	wait.Flags = format.FlagOpen
	r.write(format.ClassCall, []format.Row{wait})
}

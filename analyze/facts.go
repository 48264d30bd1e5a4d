package analyze

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/format"
)

// facts are the rows of a recording that are neither calls nor stacks.
type facts struct {
	processes map[int32]process
	threads   map[origin.Thread]string // names
	devices   map[int32]device
	// onlyDevice is the machine's GPU if it has one, else -1.
	onlyDevice int32
	exits      []exit // in order of time
	lost       []loss
	notes      []string
	inferences []format.StackInference
	sampling   sampling.Switches
	samples    []sample // in order of time
	metrics    origin.Names
	// processSamples are in order of time, others are the names they tell of processes.
	processSamples []processSample
	others         map[int32]string
	xids           []xid
	// allocators that processes have, in the order of their notes.
	allocators     []allocatorFact
	allocatorRules map[int32]caching.Rules // by process

	// hasRanks is set if the rank of any process is known, severalJobs if processes are of
	// different jobs.
	hasRanks, severalJobs bool
}

// allocatorFact is what the recorder found out about a process's caching allocator.
type allocatorFact struct {
	pid int32
	format.AllocatorFact
}

type process struct {
	Name    string          `json:"-"`
	ExitNs  int64           `json:"exit_ns"`
	Exe     string          `json:"exe"`
	Devices []deviceOrdinal `json:"devices"`
	// Identity is the zero value if nothing is known of it.
	Identity    format.Identity `json:"-"`
	ContainerID string          `json:"container_id"`
	Cgroup      string          `json:"cgroup"`
}

type device struct {
	name       string
	totalBytes int64
	fact       format.DeviceFact
}

// exit is the end of a process.
type exit struct {
	atNs int64
	pid  int32
}

// loss is an interval in which calls of a class were lost.
type loss struct {
	startNs, durNs int64
	class          string
	calls          int64
}

// sample is one NVML sample; metric indexes facts.metrics.
type sample struct {
	atNs   int64
	value  float64
	metric int32
	device int32
}

// processSample is one NVML sample about a process on a device, recorded or not.
type processSample struct {
	sample
	pid int32
}

func (t *Timeline) readFacts() error {
	f := &t.facts
	f.processes = make(map[int32]process)
	f.threads = make(map[origin.Thread]string)
	f.devices = make(map[int32]device)
	f.others = make(map[int32]string)
	f.allocatorRules = make(map[int32]caching.Rules)
	if err := t.rec.Rows(f.add, format.ClassFact); err != nil {
		return err
	}
	for _, g := range t.rec.Groups() {
		if g.Class() == format.ClassSample {
			f.addSamples(g)
		}
		if err := g.Err(); err != nil {
			return err
		}
	}
	f.compareIdentities()
	f.sampling.Finish()
	f.onlyDevice = -1
	if len(f.devices) == 1 {
		for d := range f.devices {
			f.onlyDevice = d
		}
	}
	slices.SortFunc(f.exits, func(a, b exit) int {
		return cmp.Or(cmp.Compare(a.atNs, b.atNs), cmp.Compare(a.pid, b.pid))
	})
	slices.SortStableFunc(f.samples, func(a, b sample) int { return cmp.Compare(a.atNs, b.atNs) })
	slices.SortStableFunc(f.processSamples, func(a, b processSample) int { return cmp.Compare(a.atNs, b.atNs) })
	slices.SortStableFunc(f.xids, func(a, b xid) int { return cmp.Compare(a.atNs, b.atNs) })
	slices.SortStableFunc(f.lost, func(a, b loss) int { return cmp.Compare(a.startNs, b.startNs) })
	return nil
}

func (f *facts) add(r *format.Row) error {
	switch r.Kind {
	case format.KindProcess:
		f.addProcess(r)
	case format.KindThread:
		f.threads[origin.Thread{Pid: r.Pid, Tid: r.Tid}] = r.Name
	case format.KindDevice:
		var fact format.DeviceFact
		_ = json.Unmarshal([]byte(r.Message), &fact) // without a UUID the device pairs with nothing
		f.devices[r.Device] = device{r.Name, r.Bytes, fact}
	case format.KindLost:
		f.lost = append(f.lost, loss{r.StartNs, max(0, r.DurNs), r.Name, int64(r.Value)})
	case format.KindNote:
		if i, ok := sampling.ReadInference(r); ok {
			f.addInference(i)
		} else if r.Name == format.NoteAllocator {
			f.addAllocator(r)
		} else if r.Name == format.NoteSampling {
			f.sampling.Add(r)
		} else {
			f.notes = append(f.notes, r.Message)
		}
	}
	return nil
}

// addAllocator reads the note about a process's allocator.
func (f *facts) addAllocator(r *format.Row) {
	a := allocatorFact{pid: r.Pid}
	if json.Unmarshal([]byte(r.Message), &a.AllocatorFact) != nil {
		return
	}
	f.allocators = append(f.allocators, a)
	f.allocatorRules[r.Pid] = caching.ParseRules(a.Conf)
	for _, text := range []string{a.Missing, a.Limits} {
		if text != "" && !slices.Contains(f.notes, text) {
			f.notes = append(f.notes, text)
		}
	}
}

// addSamples reads a row group of samples by column: of a long recording they are
// many.
func (f *facts) addSamples(g *format.Group) {
	kind, name := g.Strings("kind"), g.Strings("name")
	start, value := g.Int64("start_ns", nil), g.Float64("value", nil)
	device, pid := g.Int32("device", nil), g.Int32("pid", nil)
	message := g.Strings("message")
	metrics := f.metrics.All(name.Dict)
	for i, at := range start {
		switch kind.At(i) {
		case format.KindNVML:
			s := sample{at, value[i], metrics[name.Index[i]], device[i]}
			if pid[i] == 0 {
				f.samples = append(f.samples, s)
				continue
			}
			f.processSamples = append(f.processSamples, processSample{s, pid[i]})
			if name := message.At(i); name != "" {
				f.others[pid[i]] = name
			}
		case format.KindXid:
			f.xids = append(f.xids, newXid(at, device[i], pid[i], name.At(i), value[i], message.At(i)))
		}
	}
}

// addProcess merges the rows of one process: its beginning and its end may be told
// by different rows. What the message says beyond is for other readers.
func (f *facts) addProcess(r *format.Row) {
	p := f.processes[r.Pid]
	if r.Name != "" {
		p.Name = r.Name
	}
	var said process
	if r.Message != "" && json.Unmarshal([]byte(r.Message), &said) == nil {
		if said.Exe != "" {
			p.Exe, p.Identity = said.Exe, format.Identity{}
		}
		if id := readIdentity(r.Message); id.Known() {
			p.Identity = id
		}
		p.ContainerID = cmp.Or(said.ContainerID, p.ContainerID)
		p.Cgroup = cmp.Or(said.Cgroup, p.Cgroup)
		if len(said.Devices) > 0 {
			p.Devices = said.Devices
		}
		if said.ExitNs > 0 && said.ExitNs != p.ExitNs {
			p.ExitNs = said.ExitNs
			f.exits = append(f.exits, exit{said.ExitNs, r.Pid})
		}
	}
	f.processes[r.Pid] = p
}

// readIdentity reads the identity in a process's facts. One that cannot be read is unknown.
func readIdentity(message string) format.Identity {
	var said struct {
		Identity format.Identity `json:"identity"`
	}
	if json.Unmarshal([]byte(message), &said) != nil {
		return format.Identity{}
	}
	if rank := said.Identity.Rank; rank != nil && (*rank < 0 || *rank > math.MaxInt32) {
		return format.Identity{} // of a damaged recording
	}
	return said.Identity
}

// lostCalls returns how many calls the rows say were lost, of one class or, for "",
// of all.
func (f *facts) lostCalls(class string) int64 {
	var n int64
	for _, l := range f.lost {
		if class == "" || l.class == class {
			n += l.calls
		}
	}
	return n
}

// lastSample returns the newest value of a metric of a device until toNs.
func (f *facts) lastSample(metric string, device int32, toNs int64) (float64, bool) {
	id, ok := f.metrics.Ids[metric]
	if !ok {
		return 0, false
	}
	for _, s := range slices.Backward(f.samples) {
		if s.metric == id && s.device == device && s.atNs <= toNs {
			return s.value, true
		}
	}
	return 0, false
}

// allExited returns when the last process ended, if the end of every known process
// was seen.
func (f *facts) allExited() (atNs int64, ok bool) {
	for _, p := range f.processes {
		if p.ExitNs == 0 {
			return 0, false
		}
		atNs = max(atNs, p.ExitNs)
	}
	return atNs, len(f.processes) > 0
}

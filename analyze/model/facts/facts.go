package facts

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/format"
)

// Facts are the rows of a recording that are neither calls nor stacks. Maps keyed by int32 use the
// pid or the NVML index of a device.
type Facts struct {
	Processes map[int32]Process
	Threads   map[origin.Thread]string // thread names by pid and tid
	Devices   map[int32]Device
	// OnlyDevice is the NVML index of the GPU on a machine with one GPU, otherwise -1.
	OnlyDevice int32
	Exits      []ProcessExit // ends of processes, in order of time
	Lost       []CallLoss
	Notes      []string
	// CommunicatorNotes are those of Notes that say why communicators are unknown.
	CommunicatorNotes []string
	Beginnings        []Beginning // processes whose first calls are missing
	Inferences        []format.StackInference
	Sampling          sampling.SamplingSwitches
	Samples           []DeviceSample // NVML samples of devices, in order of time
	Metrics           origin.StringNumbers
	// ProcessSamples are NVML samples of single processes, in order of time. Others has the names
	// of those processes, recorded or not.
	ProcessSamples []ProcessSample
	Others         map[int32]string
	Xids           []Xid
	// Allocators are the caching allocators found in processes, in the order of their notes.
	Allocators     []AllocatorFact
	AllocatorRules map[int32]caching.AllocatorRules // configuration of the caching allocator by pid
	// EarlierStates are the states of caching allocators that were read from the memory of processes, and those that
	// could not be read. They are in order of time.
	EarlierStates []*caching.EarlierState
	// Channels are the channels of GPUs with progress rows, by number. A recording without GPU
	// times has none.
	Channels []Channel
	// Host says how class host was recorded; nil: it was not.
	Host     *format.HostFact
	channels map[channelKey]int // index in Channels
	// rowNotes are the Notes that come from rows.
	rowNotes []string
	// readStates are the states of caching allocators as they were read, in the order of their rows. earlier has them
	// by allocator and time.
	readStates []*caching.EarlierState
	earlier    map[earlierKey]*caching.EarlierState

	// HasRanks is set if the rank of any process is known. SeveralJobs is set if the processes
	// belong to different jobs.
	HasRanks, SeveralJobs bool
}

// AllocatorFact is the recorder's description of a process's caching allocator.
type AllocatorFact struct {
	Pid int32
	format.AllocatorFact
}

// Beginning describes a process whose calls before FromNs (Unix ns) are missing.
type Beginning struct {
	Pid    int32
	FromNs int64
	format.Beginning
}

// Process describes a recorded process. Fields that the recording does not have are zero.
type Process struct {
	Name   string `json:"-"`
	ExitNs int64  `json:"exit_ns"`
	// ExitSignal is the signal that ended the process, ExitCode its exit status if none did. nil and 0: unknown.
	ExitSignal int    `json:"exit_signal"`
	ExitCode   *int   `json:"exit_code"`
	Exe        string `json:"exe"`
	// ParentPid is the process that started it.
	ParentPid int32           `json:"parent_pid"`
	Devices   []ProcessDevice `json:"devices"`
	// HasOneDevice reports that the process sees only the first entry of Devices.
	HasOneDevice bool `json:"-"`
	// Identity has the rank, the job and the pod. It is the zero value if none is known.
	Identity    format.Identity `json:"-"`
	ContainerID string          `json:"container_id"`
	Cgroup      string          `json:"cgroup"`
}

// Device describes a GPU.
type Device struct {
	Name       string
	TotalBytes int64
	Fact       format.DeviceFact
}

// ProcessExit is the end of a process, at AtNs (Unix ns).
type ProcessExit struct {
	AtNs int64
	Pid  int32
}

// CallLoss is an interval (Unix ns) in which the recorder lost calls of a class.
type CallLoss struct {
	StartNs, DurNs int64
	Class          string
	Calls          int64
}

// DeviceSample is one NVML sample. Metric indexes Facts.Metrics, Device is the NVML index, AtNs is
// Unix ns.
type DeviceSample struct {
	AtNs   int64
	Value  float64
	Metric int32
	Device int32
}

// ProcessSample is one NVML sample of a process on a device. The process may be one that gpurec
// does not record.
type ProcessSample struct {
	DeviceSample
	Pid int32
}

// Read reads the facts and samples of a recording. It returns errors of reading the file.
func Read(rec *format.Recording) (*Facts, error) {
	f := newFacts()
	if err := f.Extend(rec); err != nil {
		return nil, err
	}
	return f, nil
}

// ReadWithoutSamples reads the facts of a recording, without Samples, ProcessSamples and Xids. It returns errors of
// reading the file.
func ReadWithoutSamples(rec *format.Recording) (*Facts, error) {
	f := newFacts()
	if err := f.addFacts(rec); err != nil {
		return nil, err
	}
	return f, nil
}

func newFacts() *Facts {
	return &Facts{
		Processes:      make(map[int32]Process),
		Threads:        make(map[origin.Thread]string),
		Devices:        make(map[int32]Device),
		Others:         make(map[int32]string),
		AllocatorRules: make(map[int32]caching.AllocatorRules),
		channels:       make(map[channelKey]int),
		earlier:        make(map[earlierKey]*caching.EarlierState),
	}
}

// Extend adds the facts and samples of the next piece of a growing recording. It changes the maps, so nothing else may
// use them meanwhile. It returns errors of reading the piece.
func (f *Facts) Extend(piece *format.Recording) error {
	if err := f.addFacts(piece); err != nil {
		return err
	}
	added := Facts{Metrics: f.Metrics, Others: f.Others}
	for _, g := range piece.Groups() {
		if g.Class() == format.ClassSample {
			added.addSamples(g)
		}
		if err := g.Err(); err != nil {
			return err
		}
	}
	f.Metrics = added.Metrics
	f.Samples = appendInOrder(f.Samples, added.Samples, func(s *DeviceSample) int64 { return s.AtNs })
	f.ProcessSamples = appendInOrder(
		f.ProcessSamples,
		added.ProcessSamples,
		func(s *ProcessSample) int64 { return s.AtNs },
	)
	f.Xids = appendInOrder(f.Xids, added.Xids, func(x *Xid) int64 { return x.AtNs })
	return nil
}

// appendInOrder appends added to list, which is in order of time, and keeps this order.
func appendInOrder[T any](list, added []T, atNs func(*T) int64) []T {
	compare := func(a, b T) int { return cmp.Compare(atNs(&a), atNs(&b)) }
	slices.SortStableFunc(added, compare)
	if len(list) == 0 {
		return added
	}
	isInOrder := len(added) == 0 || atNs(&list[len(list)-1]) <= atNs(&added[0])
	list = append(list, added...)
	if !isInOrder {
		slices.SortStableFunc(list, compare)
	}
	return list
}

// addFacts adds the rows of class fact, and derives what depends on all of them.
func (f *Facts) addFacts(rec *format.Recording) error {
	if err := rec.Rows(f.addRow, format.ClassFact); err != nil {
		return err
	}
	f.sortChannels()
	f.checkEarlierStates(&rec.Meta)
	f.setIdentityFlags()
	f.Sampling.ComputeWindows()
	f.OnlyDevice = -1
	if len(f.Devices) == 1 {
		for d := range f.Devices {
			f.OnlyDevice = d
		}
	}
	slices.SortFunc(f.Exits, func(a, b ProcessExit) int {
		return cmp.Or(cmp.Compare(a.AtNs, b.AtNs), cmp.Compare(a.Pid, b.Pid))
	})
	f.Notes = slices.Clone(f.rowNotes)
	f.noteBeginnings(rec.Meta.StartNs)
	if f.Host != nil {
		for _, missing := range f.Host.Missing {
			f.Notes = append(f.Notes, "host: "+missing)
		}
	}
	slices.SortStableFunc(f.Lost, func(a, b CallLoss) int { return cmp.Compare(a.StartNs, b.StartNs) })
	return nil
}

func (f *Facts) addRow(r *format.Row) error {
	switch r.Kind {
	case format.KindProcess:
		f.addProcess(r)
	case format.KindThread:
		f.Threads[origin.Thread{Pid: r.Pid, Tid: r.Tid}] = r.Name
	case format.KindDevice:
		var fact format.DeviceFact
		_ = json.Unmarshal([]byte(r.Message), &fact) // an unreadable fact leaves the UUID empty
		f.Devices[r.Device] = Device{r.Name, r.Bytes, fact}
	case format.KindChannel:
		f.addChannel(r)
	case format.KindAllocatorBlock:
		f.addEarlierBlock(r)
	case format.KindLost:
		f.Lost = append(f.Lost, CallLoss{r.StartNs, max(0, r.DurNs), r.Name, int64(r.Value)})
	case format.KindNote:
		if i, ok := sampling.ReadStackInference(r); ok {
			f.addStackInference(i)
		} else if r.Name == format.NoteAllocator {
			f.addAllocator(r)
		} else if r.Name == format.NoteAllocatorState {
			f.addEarlierNote(r)
		} else if r.Name == format.NoteSampling {
			f.Sampling.AddNote(r)
		} else if r.Name == format.NoteBeginning {
			f.addBeginning(r)
		} else if r.Name == format.NoteCommunicators {
			f.rowNotes = append(f.rowNotes, r.Message)
			f.CommunicatorNotes = append(f.CommunicatorNotes, r.Message)
		} else if r.Name == format.NoteHost {
			f.addHost(r)
		} else {
			f.rowNotes = append(f.rowNotes, r.Message)
		}
	}
	return nil
}

// addAllocator reads the note about a process's caching allocator.
func (f *Facts) addAllocator(r *format.Row) {
	a := AllocatorFact{Pid: r.Pid}
	if json.Unmarshal([]byte(r.Message), &a.AllocatorFact) != nil {
		return
	}
	f.Allocators = append(f.Allocators, a)
	f.AllocatorRules[r.Pid] = caching.ParseAllocatorRules(a.Conf)
	for _, text := range []string{a.Missing, a.Limits} {
		if text != "" && !slices.Contains(f.rowNotes, text) {
			f.rowNotes = append(f.rowNotes, text)
		}
	}
}

// addHost reads the note about class host. It replaces an earlier one.
func (f *Facts) addHost(r *format.Row) {
	var h format.HostFact
	if json.Unmarshal([]byte(r.Message), &h) == nil {
		f.Host = &h
	}
}

// addBeginning reads the note about a process whose first calls are missing. It replaces an earlier
// note about the same process and library.
func (f *Facts) addBeginning(r *format.Row) {
	b := Beginning{Pid: r.Pid, FromNs: r.StartNs}
	if json.Unmarshal([]byte(r.Message), &b.Beginning) != nil {
		return
	}
	f.Beginnings = slices.DeleteFunc(f.Beginnings, func(o Beginning) bool {
		return o.Pid == b.Pid && o.Library == b.Library
	})
	if b.Missed != 0 {
		f.Beginnings = append(f.Beginnings, b)
	}
}

// noteBeginnings adds sentences about processes whose first calls are missing.
func (f *Facts) noteBeginnings(startNs int64) {
	for i := range f.Beginnings {
		b := &f.Beginnings[i]
		number := fmt.Sprintf("%d are missing", b.Missed)
		if b.Missed == format.UnknownMissed {
			number = "their number is unknown"
		}
		of := cmp.Or(b.Library, "CUDA")
		f.Notes = append(f.Notes, fmt.Sprintf("process %d is recorded from +%.1f s on: %s; its earlier calls of %s: %s",
			b.Pid, float64(max(0, b.FromNs-startNs))/1e9, b.Why, of, number))
	}
}

// addSamples reads a row group of samples column by column: long recordings have many samples.
func (f *Facts) addSamples(g *format.Group) {
	kind, name := g.Strings("kind"), g.Strings("name")
	start, value := g.Int64("start_ns", nil), g.Float64("value", nil)
	device, pid := g.Int32("device", nil), g.Int32("pid", nil)
	message := g.Strings("message")
	metrics := f.Metrics.NumbersOf(name.Dict)
	for i, at := range start {
		switch kind.At(i) {
		case format.KindNVML:
			s := DeviceSample{at, value[i], metrics[name.Index[i]], device[i]}
			if pid[i] == 0 {
				f.Samples = append(f.Samples, s)
				continue
			}
			f.ProcessSamples = append(f.ProcessSamples, ProcessSample{s, pid[i]})
			if name := message.At(i); name != "" {
				f.Others[pid[i]] = name
			}
		case format.KindXid:
			f.Xids = append(f.Xids, newXid(at, device[i], pid[i], name.At(i), value[i], message.At(i)))
		}
	}
}

// addProcess merges the rows of one process: its start and its end may come in separate rows. It
// ignores message fields that it does not know.
func (f *Facts) addProcess(r *format.Row) {
	p := f.Processes[r.Pid]
	if r.Name != "" {
		p.Name = r.Name
	}
	var parsed Process
	if r.Message != "" && json.Unmarshal([]byte(r.Message), &parsed) == nil {
		if parsed.Exe != "" {
			p.Exe, p.Identity = parsed.Exe, format.Identity{}
		}
		if id := readIdentity(r.Message); id.Known() {
			p.Identity = id
		}
		p.ParentPid = cmp.Or(parsed.ParentPid, p.ParentPid)
		p.ContainerID = cmp.Or(parsed.ContainerID, p.ContainerID)
		p.Cgroup = cmp.Or(parsed.Cgroup, p.Cgroup)
		if len(parsed.Devices) > 0 {
			p.Devices, p.HasOneDevice = parsed.Devices, len(parsed.Devices) == 1
		}
		if parsed.ExitNs > 0 && parsed.ExitNs != p.ExitNs {
			p.ExitNs, p.ExitSignal, p.ExitCode = parsed.ExitNs, parsed.ExitSignal, parsed.ExitCode
			f.Exits = append(f.Exits, ProcessExit{parsed.ExitNs, r.Pid})
		}
	}
	f.Processes[r.Pid] = p
}

// signalNames are the signals of Linux that end processes.
var signalNames = map[int]string{
	1:  "SIGHUP",
	2:  "SIGINT",
	3:  "SIGQUIT",
	4:  "SIGILL",
	5:  "SIGTRAP",
	6:  "SIGABRT",
	7:  "SIGBUS",
	8:  "SIGFPE",
	9:  "SIGKILL",
	10: "SIGUSR1",
	11: "SIGSEGV",
	12: "SIGUSR2",
	13: "SIGPIPE",
	14: "SIGALRM",
	15: "SIGTERM",
	31: "SIGSYS",
}

// DescribeExit says how the process ended, such as "killed by SIGKILL" or "exited with status 3". It returns "" if the
// recording does not know it.
func (p *Process) DescribeExit() string {
	switch {
	case p.ExitSignal > 0:
		return "killed by " + cmp.Or(signalNames[p.ExitSignal], fmt.Sprintf("signal %d", p.ExitSignal))
	case p.ExitCode != nil:
		return fmt.Sprintf("exited with status %d", *p.ExitCode)
	}
	return ""
}

// readIdentity reads the identity from a process's message. An identity that cannot be parsed is
// unknown.
func readIdentity(message string) format.Identity {
	var parsed struct {
		Identity format.Identity `json:"identity"`
	}
	if json.Unmarshal([]byte(message), &parsed) != nil {
		return format.Identity{}
	}
	if rank := parsed.Identity.Rank; rank != nil && (*rank < 0 || *rank > math.MaxInt32) {
		return format.Identity{} // only a damaged recording has such a rank
	}
	return parsed.Identity
}

// CountLostCalls returns the number of lost calls of a class, or of all classes if class is "".
func (f *Facts) CountLostCalls(class string) int64 {
	var n int64
	for _, l := range f.Lost {
		if class == "" || l.Class == class {
			n += l.Calls
		}
	}
	return n
}

// LastSample returns the newest value of a device metric at or before toNs (Unix ns). It returns
// false if there is none.
func (f *Facts) LastSample(metric string, device int32, toNs int64) (float64, bool) {
	id, ok := f.Metrics.Ids[metric]
	if !ok {
		return 0, false
	}
	for _, s := range slices.Backward(f.Samples) {
		if s.Metric == id && s.Device == device && s.AtNs <= toNs {
			return s.Value, true
		}
	}
	return 0, false
}

// LastExit returns when the last process ended (Unix ns). It returns false unless the end of every
// known process was recorded.
func (f *Facts) LastExit() (atNs int64, ok bool) {
	for _, p := range f.Processes {
		if p.ExitNs == 0 {
			return 0, false
		}
		atNs = max(atNs, p.ExitNs)
	}
	return atNs, len(f.Processes) > 0
}

// addStackInference replaces the earlier entry of the same class and key, or adds a new entry.
func (f *Facts) addStackInference(i format.StackInference) {
	for k := range f.Inferences {
		if o := &f.Inferences[k]; o.Class == i.Class && o.Key == i.Key {
			*o = i
			return
		}
	}
	f.Inferences = append(f.Inferences, i)
}

// SumStackInferences returns the sum of the stack inferences of all classes.
func (f *Facts) SumStackInferences() (sum format.StackInference) {
	for _, i := range f.Inferences {
		sum.Inferred += i.Inferred
		sum.Checked += i.Checked
		sum.Wrong += i.Wrong
		sum.WrongEstimated += i.WrongEstimated
		sum.Busy += i.Busy
		sum.Unchecked += i.Unchecked
	}
	return sum
}

// CountReportedAllocators returns the number of processes whose caching allocator is known only
// from its reported statistics.
func (f *Facts) CountReportedAllocators() (n int64) {
	pids := make(map[int32]bool)
	for _, a := range f.Allocators {
		if a.Source == format.SourceReports {
			pids[a.Pid] = true
		}
	}
	return int64(len(pids))
}

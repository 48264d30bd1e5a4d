//go:build linux

package record

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/nvml"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/ring"
	"github.com/gpurec/gpurec/record/rows"
	"github.com/gpurec/gpurec/record/scribe"
	"github.com/gpurec/gpurec/record/unwind"
	"github.com/gpurec/gpurec/record/xid"
)

// Options say what to record and how. Zero values are not defaults: DefaultOptions
// has those.
type Options struct {
	// Pids are the processes to record.
	Pids []int
	// Command is a held program to record as well; it may be nil.
	Command *Command
	// Duration ends the recording; 0: it ends with the context or the processes.
	Duration time.Duration
	// Output is the file to write; "" makes a name from process and time in Folder.
	Output string
	Folder string
	Force  bool
	Owner  format.Owner
	// BufferBytes is the size of the ring buffer, a power of two from 64 KiB.
	BufferBytes int
	// Stacks is how stacks are taken: StacksAuto, StacksFull, StacksFP or StacksOff.
	Stacks string
	Attach privilege.Attach
	// NVMLInterval is the time between GPU samples, 0: none.
	NVMLInterval time.Duration
	// MaxBytes bounds what the recording takes on disk, segments and finished file together;
	// then it ends. 0: no bound, else at least format.MinMaxBytes.
	MaxBytes int64
	// Ring keeps only the last RingFor (0: of any age), within MaxBytes.
	Ring    bool
	RingFor time.Duration
	// SegmentInterval is what a crash costs at most.
	SegmentInterval time.Duration
	// WaitForLibrary waits for processes that have not loaded libcuda yet.
	WaitForLibrary bool
	// Children records the processes' children, those of now and those to come.
	Children bool
	// All records every process on the machine that uses CUDA; Pids is then empty.
	All bool
	// KeepGetters goes on probing getters however often they are called.
	KeepGetters bool
	// KeepReturns goes on probing the returns of launches however many there are.
	KeepReturns bool
	// MaxOverheadPct is how much of its time, in percent, probes may cost the thread that
	// they cost most: above it, launches of kernels are recorded for part of the time. 0:
	// no limit.
	MaxOverheadPct float64
	// Allocator is how PyTorch's caching allocator is recorded.
	Allocator library.AllocatorMode
	// Classes are the classes of calls to record, some of format.RecordClasses; none: all.
	// Without RecordAllocator among them, Allocator must be AllocatorOff.
	Classes []string
	// Warn is told in a sentence what will be missing from the recording, while it runs, by
	// any goroutine; it may be nil.
	Warn func(text string)
	// Comm and Cgroup narrow All: processes of this name (15 characters, as in
	// /proc/PID/comm), processes in this cgroup v2 or below it.
	Comm, Cgroup string
	Version      string
	CommandLine  []string

	// Only probes these functions alone, if there are any. For tests, as what is below.
	Only []string

	returns   returnPolicy // of launches
	governor  overhead.Policy
	knownSets int        // probe.Options.KnownSets
	xids      *xid.Paths // tests: where Xids come from; nil: the system's
	// clockShift is added to the wall clock as it was when the recording began.
	clockShift time.Duration
}

// DefaultOptions returns the options that the command line starts from.
func DefaultOptions() Options {
	return Options{
		BufferBytes: 32 << 20, Stacks: probe.StacksAuto, Attach: privilege.AttachAuto, Children: true, Allocator: library.AllocatorAuto,
		NVMLInterval: 100 * time.Millisecond, SegmentInterval: 3 * time.Second, returns: defaultReturns, governor: overhead.DefaultPolicy,
	}
}

// scanInterval is how often a process is looked at for a libcuda that it maps: often
// while there is none, seldom afterwards, because a look costs about a millisecond.
const scanInterval = 20 * time.Millisecond

const rescanInterval = 2 * time.Second

// mappedDelay lets a program map what belongs together before it is looked at.
const mappedDelay = 5 * time.Millisecond

// unwatchedInterval is the one where new mappings are not told by the kernel.
const unwatchedInterval = 300 * time.Millisecond

const aliveInterval = 100 * time.Millisecond

// Session is a recording under way. Start begins it, Run goes on until it should
// end, Finish ends it and makes the file, Close takes away what is left of it.
type Session struct {
	opt      Options
	family   family
	unwinder *unwind.Unwinder // nil: stacks are not unwound
	remapped *pidSet          // processes with new executable mappings
	// stacksErr says why stacks are not as complete as was asked for.
	stacksErr error
	probes    *probe.Probes
	drain     *ring.Drain
	scribe    *scribe.Scribe
	nvml      *nvml.Sampler
	nvmlErr   error        // why the GPUs are not sampled
	machine   *rows.Sender // of what is recorded beside the calls
	gpus      []host.GPU
	output    string
	clock     clock.Clock
	startNs   int64
	endNs     int64 // on CLOCK_MONOTONIC: from when on no calls are recorded
	finished  atomic.Bool
	costBase  format.Cost

	stop     chan struct{} // ends the helpers
	helpers  sync.WaitGroup
	failures chan error
	full     chan struct{} // the recording has reached its size
	births   chan bpf.CudaProcessEvent
	// followErr says why children are not followed.
	followErr error
	// crowded remembers for libraries whether processes use them that are not recorded.
	crowded   map[process.FileID]bool
	libraries []*library.Library // probed for somebody
	cache     *library.Cache

	// complaints are the processes whose calls are missing for a reason that was told, and
	// notes what is to be written down when the recording begins.
	complaints map[int]bool
	notes      []format.Row

	allocators allocatorWatch
	// launchesSampled is set while probes of launches come and go.
	launchesSampled atomic.Bool

	metaMu sync.Mutex
	meta   format.Meta
}

// Start attaches to the processes and begins to record. What it says is wrong:
// *ProcessError, *PrivilegeError, *KernelError, an error matching format.ErrExists,
// or one of package os about the output. On an error nothing is left behind.
func Start(opt Options) (_ *Session, err error) {
	s := &Session{
		opt: opt, stop: make(chan struct{}), failures: make(chan error, 1), full: make(chan struct{}, 1), births: make(chan bpf.CudaProcessEvent, 4096), crowded: make(map[process.FileID]bool), complaints: make(map[int]bool), family: newFamily(), cache: library.NewCache(), remapped: newPidSet(), allocators: newAllocatorWatch(),
	}
	defer func() {
		if err != nil {
			_ = s.Close() // the error that matters is already there
		}
	}()
	s.opt.Comm = process.KernelComm(opt.Comm)
	if err := host.CheckKernel(); err != nil {
		return nil, err
	}
	if err := s.openProcesses(); err != nil {
		return nil, err
	}
	how := opt.Attach.OnThisKernel()
	if err := privilege.Check(how); err != nil {
		return nil, err
	}
	libraries, err := s.findLibraries()
	if err != nil {
		return nil, err
	}
	s.output = opt.Output
	if s.output == "" {
		s.output = filepath.Join(opt.Folder, s.family.defaultOutput(time.Now().Format("20060102-150405")))
	}
	writer, err := format.Create(s.output, format.Options{Force: opt.Force, Owner: opt.Owner, Limits: limitsOf(&opt)})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = writer.Abort() // as above
		}
	}()
	s.openNVML()
	begin := time.Now()
	s.startUnwinder(how)
	if err := s.attach(how, libraries); err != nil {
		return nil, err
	}
	s.meta.Cost.AttachNs = time.Since(begin).Nanoseconds()
	return s, s.begin(writer)
}

// attach loads the programs and places the probes.
func (s *Session) attach(how privilege.Attach, targets []target) error {
	only := process.Cgroup{}
	if s.opt.Cgroup != "" {
		var err error
		if only, err = process.OpenCgroup(s.opt.Cgroup); err != nil {
			return err
		}
	}
	probes, err := s.loadProbes(how, only)
	if err != nil {
		return err
	}
	s.probes = probes
	for _, p := range s.family.all() {
		if err := probes.Target(p.Pid); err != nil {
			return err
		}
	}
	if s.opt.Children {
		s.followErr = probes.Follow()
		if err := s.adoptBorn(); err != nil {
			return err
		}
	}
	if err := probes.Pause(true); err != nil {
		return err
	}
	for _, t := range targets {
		probes.SetAllocatorSource(t.library, t.pid)
		if err := s.place(t.library, t.pid); err != nil && slices.Contains(s.asked(), t.pid) {
			return err
		} else if errors.Is(err, process.ErrNoProcess) {
			continue // a child that has ended since
		} else if err != nil {
			s.complain(&process.Process{Pid: t.pid}, err)
			continue
		}
		s.libraries = append(s.libraries, t.library)
	}
	return probes.Pause(false)
}

// probe.Load loads the programs. If stacks cannot be unwound, they are loaded again for
// stacks by frame pointers.
func (s *Session) loadProbes(how privilege.Attach, only process.Cgroup) (*probe.Probes, error) {
	load := func() (*probe.Probes, error) {
		return probe.Load(probe.Options{
			How: how, BufferBytes: s.opt.BufferBytes, Stacks: s.opt.Stacks, Unwinder: s.unwinder,
			All: s.opt.All, Comm: s.opt.Comm, Cgroup: only, Functions: s.opt.Only, Classes: s.opt.Classes, KnownSets: s.opt.knownSets,
		})
	}
	p, err := load()
	if s.unwinder == nil {
		return p, err
	}
	if err == nil {
		s.syncUnwinder(p)
		if err = probe.SelfTest(p, s.unwinder); err == nil {
			return p, nil
		}
		_ = p.Close() // nothing is attached
	}
	s.unwinder.Close()
	s.unwinder, s.stacksErr, s.opt.Stacks = nil, err, probe.StacksFP
	return load()
}

// begin starts the goroutines of the recording.
func (s *Session) begin(writer *format.Writer) error {
	c := clock.New()
	c.OffsetNs += int64(s.opt.clockShift)
	s.clock, s.startNs = c, c.NowNs()
	s.meta.GpurecVersion, s.meta.Command = s.opt.Version, s.opt.CommandLine
	s.meta.StartNs, s.meta.ClockOffsetNs = s.startNs, c.OffsetNs
	s.meta.Stacks, s.meta.Attach, s.meta.Classes = s.opt.Stacks, string(s.probes.How), s.opt.Classes
	host.Describe(&s.meta)
	pool, err := ring.NewPool()
	if err != nil {
		return err
	}
	s.scribe = scribe.New(scribe.Options{
		Writer: writer, Probes: s.probes, Clock: c, Unwinder: s.unwinder, Pool: pool, Limits: limitsOf(&s.opt),
		Meta:      s.metaNow,
		OnFailure: func(err error) { s.failures <- err },
		OnFull:    func() { s.full <- struct{}{} },
	})
	drain, err := ring.NewDrain(s.probes.Objects.Events, s.scribe.Chunks, pool, s.births)
	if err != nil {
		return err
	}
	s.drain = drain
	var facts []format.Row
	if s.nvml != nil {
		facts = s.nvml.Facts(s.startNs)
	} else if s.nvmlErr != nil {
		facts = append(facts, format.Row{Kind: format.KindNote, Name: "nvml", StartNs: s.startNs, Message: s.nvmlErr.Error(), Device: -1})
	}
	for _, p := range s.family.all() {
		facts = append(facts, p.Row(p.ReadFacts(s.gpus), s.startNs))
	}
	if s.followErr != nil {
		facts = append(facts, format.Row{Kind: format.KindNote, Name: "children", StartNs: s.startNs, Message: "children are not followed: " + s.followErr.Error(), Device: -1})
	}
	if len(s.opt.Classes) > 0 {
		s.notes = append(s.notes, format.Row{Kind: format.KindNote, Name: "classes", Device: -1, Message: classNote(s.opt.Classes)})
	}
	for _, note := range s.notes {
		note.StartNs = s.startNs
		facts = append(facts, note)
	}
	if s.stacksErr != nil {
		facts = append(facts, format.Row{Kind: format.KindNote, Name: "stacks", StartNs: s.startNs, Message: "stacks are not complete: " + s.stacksErr.Error(), Device: -1})
	}
	go s.scribe.Run(s.opt.SegmentInterval)
	go s.drain.Run()
	if len(facts) > 0 {
		s.scribe.Send(facts)
	}
	s.startHelpers(c)
	s.costBase = overhead.OwnCost() // what attaching took is told apart
	return nil
}

// startHelpers starts what runs beside the ring buffer.
func (s *Session) startHelpers(c clock.Clock) {
	statsOn, statsEvery := probe.StatsOn, probe.StatsEvery
	if s.opt.MaxOverheadPct > 0 {
		statsOn, statsEvery = probe.StatsOnGoverned, probe.StatsEveryGoverned
		s.helpers.Go(func() { s.govern(s.stop) })
	}
	s.helpers.Go(func() { probe.SampleRunTimes(s.stop, statsOn, statsEvery) })
	s.helpers.Go(func() { s.reapThreads(s.stop) })
	if !s.opt.KeepGetters {
		s.helpers.Go(func() { s.dropGetters(s.stop) })
	}
	if !s.opt.KeepReturns && s.probes.How == privilege.AttachMulti {
		s.helpers.Go(func() { s.spareReturns(s.stop) })
	}
	s.watchMachine(c)
}

// openNVML looks for GPUs. It comes before attaching, because nothing drains the
// ring buffer meanwhile.
func (s *Session) openNVML() {
	if s.opt.NVMLInterval <= 0 {
		return
	}
	if s.nvml, s.nvmlErr = nvml.Open(); s.nvmlErr == nil {
		s.gpus = s.nvml.GPUs()
		s.meta.DriverVersion, s.meta.CUDAVersion = s.nvml.DriverVersion, s.nvml.CUDAVersion
	}
}

// metaNow returns the metadata as of now, without what the scribe counts.
func (s *Session) metaNow() format.Meta {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	meta := s.meta
	meta.Probes = s.probes.Placed()
	return meta
}

// warn tells the user what will be missing.
func (s *Session) warn(text string) {
	if s.opt.Warn != nil {
		s.opt.Warn(text)
	}
}

// Output returns the file that the recording will be.
func (s *Session) Output() string { return s.output }

// Probes returns how many places are probed, and by which kernel interface.
func (s *Session) Probes() (int, privilege.Attach) { return s.probes.Placed(), s.probes.How }

// HasNVML reports whether the GPUs are sampled.
func (s *Session) HasNVML() bool { return s.nvml != nil }

// StacksError says why stacks are not as complete as was asked for, nil if they are.
func (s *Session) StacksError() error { return s.stacksErr }

// Progress is what a recording has come to so far.
type Progress = scribe.Progress

// Progress returns how far the recording is; safe for concurrent use.
func (s *Session) Progress() Progress { return s.scribe.Progress() }

// Processes returns number and name of every recorded process.
func (s *Session) Processes() map[int]string {
	names := make(map[int]string)
	for _, p := range s.family.all() {
		names[p.Pid] = p.Comm
	}
	return names
}

// End says why Run returned.
type End string

// Reasons for the end of a recording.
const (
	EndDuration  End = "the time is over"
	EndProcesses End = "the process has ended"
	EndContext   End = "it was stopped"
	EndSize      End = "the recording has reached its greatest size"
)

// Run records until ctx is done, the duration is over or all processes have ended.
// An error means that the recording cannot go on, a full disk for example; what was
// written before is kept. Finish must be called in every case.
func (s *Session) Run(ctx context.Context) (End, error) {
	if s.opt.Duration > 0 {
		timeout, cancel := context.WithTimeoutCause(ctx, s.opt.Duration, errDuration)
		defer cancel()
		ctx = timeout
	}
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	scan := time.NewTimer(0)
	defer scan.Stop()
	mapped := time.NewTimer(0)
	defer mapped.Stop()
	for {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errDuration) {
				return EndDuration, nil
			}
			return EndContext, nil
		case err := <-s.failures:
			return "", err
		case <-s.full:
			return EndSize, nil
		case <-s.remapped.news:
			mapped.Reset(mappedDelay)
		case <-mapped.C:
			s.lookAtMapped()
		case <-alive.C:
			s.endSearches()
			if s.buryDead() && !s.opt.All {
				return EndProcesses, nil
			}
		case birth := <-s.births:
			s.welcome(birth)
		case <-scan.C:
			scan.Reset(s.scanLibraries())
		}
	}
}

var errDuration = errors.New("duration over")

//go:build linux

package record

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/hoststack"
	"github.com/gpurec/gpurec/record/liveset"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/progress"
	"github.com/gpurec/gpurec/record/rowwriter"
	"github.com/gpurec/gpurec/record/sampling"
	"github.com/gpurec/gpurec/record/target"
	"github.com/gpurec/gpurec/record/threadstate"
	"github.com/gpurec/gpurec/record/unwind"
	"github.com/gpurec/gpurec/record/unwind/tablecache"
)

// Session is a running recording. Start begins it, Run continues until it should end, Finish ends
// it and writes the file, Close releases all resources. doc.go lists its goroutines.
type Session struct {
	opt      Options
	targets  *target.Set
	unwinder *unwind.Unwinder // nil: stacks are not unwound
	// tables keeps unwind tables for the next recording; nil: none.
	tables *tablecache.Cache
	// stackFiles has the unwind tables and symbols that snapshots of threads use.
	stackFiles *hoststack.Files
	// stacksErr is the reason why stacks are less complete than requested.
	stacksErr error
	probes    *probe.Probes
	pipeline  *pipeline // nil until the recording begins
	sampler   sampling.Sampler
	machine   gpuMonitor
	holds     holds
	progress  *progress.Recorder // nil: GPU times are not recorded
	// kernels finds the parameters of kernels; nil: the arguments of launches are not recorded.
	kernels *kernelResolver
	host    hostRecorders
	// threadStates takes snapshots of silent processes; nil: it does not.
	threadStates *threadstate.Recorder
	// earlierBlocks has an element for each process whose blocks are being read.
	earlierBlocks chan struct{}
	blockReaders  *blockReaders
	// triggers keeps parts of a ring; nil: no trigger was asked for.
	triggers *triggerLoop
	reviews  *reviewLoop // nil: the recording is not reviewed
	// captureMu is held while a capture ends: the row writer notes returns for one of them at a time.
	captureMu sync.Mutex
	// census reads the communicators of all processes at the start, at silence, and at the end.
	census   *censusTaker
	output   string
	clock    clock.Clock
	startNs  int64 // start of the recording in Unix ns
	endNs    int64 // CLOCK_MONOTONIC: no calls are recorded after this time
	finished atomic.Bool
	costBase format.Cost

	stop    chan struct{}  // closed to end the helper goroutines
	helpers sync.WaitGroup // all goroutines except the pipeline's

	metaMu sync.Mutex
	meta   format.Meta
}

// Start attaches to the processes and begins to record. It returns *process.Error,
// *process.CgroupError, *privilege.Error, *host.KernelError, an error that matches
// format.ErrExists, or an error of package os about the output. On an error it releases all
// resources.
func Start(opt Options) (_ *Session, err error) {
	s := &Session{opt: opt, stop: make(chan struct{}), earlierBlocks: make(chan struct{}, maxEarlierBlocksRead)}
	defer func() {
		if err != nil {
			s.blockReaders.cancel()
			_ = s.Close() // Start returns err
		}
	}()
	if err := host.CheckKernel(); err != nil {
		return nil, err
	}
	targets := s.opt.targets(s.warn)
	if !opt.NoEarlierBlocks {
		targets.OnEarlierAllocator = s.readEarlierBlocks
	}
	s.blockReaders = newBlockReaders(s)
	targets.OnAllocator = s.blockReaders.add
	if s.targets, err = target.Open(targets); err != nil {
		return nil, err
	}
	how := opt.Attach.ResolveForKernel()
	if err := privilege.CheckAttach(how); err != nil {
		return nil, err
	}
	libraries, err := s.targets.Libraries()
	if err != nil {
		return nil, err
	}
	s.output = opt.Output
	if s.output == "" {
		s.output = filepath.Join(opt.Folder, s.defaultOutput(time.Now()))
	}
	writer, err := format.Create(s.output, format.Options{
		Force: opt.Force, Owner: opt.Owner, Limits: opt.limits(), TracksRotations: opt.Reviews != nil,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = writer.Abort() // Start returns err
		}
	}()
	s.blockReaders.prepare(libraries)
	s.openNVML()
	begin := time.Now()
	s.startUnwinder(how)
	if err := s.attach(how, libraries); err != nil {
		return nil, err
	}
	s.meta.Cost.AttachNs = time.Since(begin).Nanoseconds()
	return s, s.begin(writer)
}

// defaultOutput returns the default file name, with the name of the oldest target process.
func (s *Session) defaultOutput(now time.Time) string {
	comm, pid := "all", os.Getpid()
	if p := s.targets.Oldest(); p != nil {
		comm, pid = p.Comm, p.Pid
	}
	return makeOutputName(comm, pid, now.Format("20060102-150405"))
}

// attach loads the BPF programs and attaches the probes.
func (s *Session) attach(how privilege.AttachMethod, libraries []target.Library) error {
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
	if s.opt.MaxOverheadPct > 0 {
		first := overhead.NewGovernor(s.opt.governor, s.opt.MaxOverheadPct).UnwindShare()
		if err := probes.RationUnwinding(first); err != nil {
			return err
		}
	}
	s.blockReaders.awaitPrepared()
	if err := s.targets.Attach(probes, s.unwinder, libraries); err != nil {
		return err
	}
	s.startHolder()
	return nil
}

// loadProbes loads the BPF programs. If stacks cannot be unwound, it loads the programs again for
// stacks walked by frame pointers.
func (s *Session) loadProbes(how privilege.AttachMethod, only process.Cgroup) (*probe.Probes, error) {
	load := func() (*probe.Probes, error) {
		return probe.LoadPrograms(probe.Options{
			How: how, BufferBytes: s.opt.BufferBytes, Stacks: s.opt.Stacks, Unwinder: s.unwinder,
			All: s.opt.All, Comm: process.TruncateComm(s.opt.Comm), Cgroup: only,
			Functions: s.opt.Only, Classes: s.opt.Classes, StackCacheSets: s.opt.stackCacheSets,
			ModuleClasses:  s.opt.ModuleClasses,
			SampleProgress: s.opt.GPUTime != progress.RateOff, KernelArgs: s.opt.KernelArgs != 0,
			KeptLaunches: max(0, s.opt.KernelArgs),
		})
	}
	p, err := load()
	if s.unwinder == nil {
		return p, err
	}
	if err == nil {
		s.targets.AwaitUnwinding(p, s.unwinder)
		if err = probe.SelfTestUnwinding(p, s.unwinder); err == nil {
			return p, nil
		}
		_ = p.Close() // no probe is attached yet, so Close cannot fail
	}
	s.unwinder.Close()
	s.unwinder, s.stacksErr, s.opt.Stacks = nil, err, probe.StacksFP
	return load()
}

// begin starts the goroutines of the recording, and writes its first rows.
func (s *Session) begin(writer *format.Writer) error {
	s.clock = clock.New()
	s.clock.OffsetNs += int64(s.opt.clockShift)
	s.startNs = s.clock.NowNs()
	s.meta.GpurecVersion, s.meta.Command = s.opt.Version, s.opt.CommandLine
	s.meta.StartNs, s.meta.ClockOffsetNs = s.startNs, s.clock.OffsetNs
	s.meta.Stacks, s.meta.Attach, s.meta.Classes = s.opt.Stacks, string(s.probes.How), s.opt.Classes
	host.DescribeMachine(&s.meta)
	var err error
	options := rowwriter.Options{
		Writer: writer, Probes: s.probes, Clock: s.clock, Unwinder: s.unwinder, Limits: s.opt.limits(), Meta: s.metaNow,
		Tap:        s.opt.Tap,
		KernelArgs: s.opt.KernelArgs, Resolver: s.newKernelResolver(),
	}
	options.Watch, options.Live = s.newWatchers()
	s.pipeline, err = newPipeline(options)
	if err != nil {
		return err
	}
	if rows := s.firstRows(); len(rows) > 0 {
		s.pipeline.writer.WriteFirst(rows)
	}
	s.pipeline.run(s.opt.SegmentInterval)
	if s.opt.EmptyProbes {
		if err := s.emptyProbes(); err != nil {
			return err
		}
	}
	s.startHelpers()
	s.costBase = overhead.ReadOwnCost() // the cost of attaching is counted separately
	return nil
}

// newWatchers returns what looks at rows for triggers and reviews, and the driver memory that they follow. Both are nil
// without triggers and reviews.
func (s *Session) newWatchers() (rowwriter.Watcher, *liveset.Set) {
	live := liveset.New(liveset.DefaultMaxBlocks)
	var list watchers
	if s.triggers = s.newTriggerLoop(); s.triggers != nil {
		s.triggers.rows.FollowMemory(live)
		list = append(list, s.triggers.rows)
	}
	if s.reviews = s.newReviewLoop(live); s.reviews != nil {
		list = append(list, s.reviews.signs)
	}
	if len(list) == 0 {
		return nil, nil
	}
	return list, live
}

// emptyProbes makes the BPF programs return at once.
func (s *Session) emptyProbes() error {
	s.opt.KeepReturns = true // so that they are not attached again
	s.opt.MaxOverheadPct = 0
	if err := s.probes.SkipLaunchReturns(s.stop); err != nil {
		return err
	}
	return s.probes.SetPaused(true)
}

// firstRows returns the facts and notes at the start of a recording.
func (s *Session) firstRows() []format.Row {
	rows := append(
		s.machine.gpuRows(s.startNs),
		s.targets.Begin(s.clock, s.machine.gpus, s.pipeline.writer.Send, s.startNs)...)
	note := func(name, text string) {
		rows = append(
			rows,
			format.Row{Kind: format.KindNote, Name: name, StartNs: s.startNs, Device: -1, Message: text},
		)
	}
	if len(s.opt.Classes) > 0 {
		note("classes", describeMissingClasses(s.opt.Classes))
	}
	if s.stacksErr != nil {
		note("stacks", "stacks are not complete: "+s.stacksErr.Error())
	}
	return rows
}

// startHelpers starts all goroutines except the pipeline's. They end when s.stop is closed.
func (s *Session) startHelpers() {
	s.sampler = sampling.Sampler{Probes: s.probes, Recorder: s.pipeline.writer, Clock: s.clock, Warn: s.warn}
	if s.opt.maySampleEvents() {
		s.sampler.Blocks = s.blockReaders
	}
	if s.opt.MaxOverheadPct > 0 { // it also measures run times
		s.helpers.Go(func() { s.sampler.LimitOverhead(s.opt.governor, s.opt.MaxOverheadPct, s.stop) })
	} else {
		s.helpers.Go(func() { probe.SampleRunTimes(s.stop) })
	}
	s.helpers.Go(func() { s.reapThreads(s.stop) })
	if !s.opt.KeepGetters {
		s.helpers.Go(func() { s.sampler.RemoveGetterProbes(s.opt.getters(), s.stop) })
	}
	if !s.opt.KeepReturns && s.probes.How == privilege.AttachMulti {
		s.helpers.Go(func() { s.sampler.SampleLaunchReturns(s.opt.returns, s.stop) })
		s.helpers.Go(func() { s.sampler.LimitCollectives(s.opt.collectives, s.stop) })
	}
	s.startProgress()
	s.stackFiles = s.newStackFiles()
	s.census = newCensusTaker(s.pipeline.writer, s.clock)
	s.helpers.Go(func() { s.census.take(s.targetPids()) })
	s.startThreadStates()
	s.startHostContext()
	s.startMonitoring()
	if s.triggers != nil {
		s.helpers.Go(func() { s.triggers.run(s.stop) })
	}
	if s.reviews != nil {
		s.helpers.Go(func() { s.reviews.run(s.stop) })
	}
}

// metaNow returns the current metadata without the row writer's counts.
func (s *Session) metaNow() format.Meta {
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	meta := s.meta
	meta.Probes, meta.Late = s.probes.ProbeCount(), s.targets.Late()
	return meta
}

// warn passes a sentence about missing data to Options.Warn.
func (s *Session) warn(text string) {
	if s.opt.Warn != nil {
		s.opt.Warn(text)
	}
}

// Output returns the path of the recording's file.
func (s *Session) Output() string { return s.output }

// Probes returns the number of probed addresses, and the attach method.
func (s *Session) Probes() (int, privilege.AttachMethod) { return s.probes.ProbeCount(), s.probes.How }

// HasNVML reports whether the GPUs are sampled with NVML.
func (s *Session) HasNVML() bool { return s.machine.nvml != nil }

// StacksError returns the reason why stacks are less complete than requested, or nil.
func (s *Session) StacksError() error { return s.stacksErr }

// Progress counts the calls recorded so far.
type Progress = rowwriter.Progress

// Progress returns the progress of the recording. Safe for concurrent use.
func (s *Session) Progress() Progress { return s.pipeline.writer.Progress() }

// Processes returns the names of all target processes, by pid. Safe for concurrent use.
func (s *Session) Processes() map[int]string {
	names := make(map[int]string)
	for _, p := range s.targets.All() {
		names[p.Pid] = p.Comm
	}
	return names
}

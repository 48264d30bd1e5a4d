//go:build linux

package hostmetric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/rows"
)

const (
	// sampleInterval is the time between two samples of all metrics.
	sampleInterval = time.Second
	// throttleInterval is the time between two samples of a CPU limit.
	throttleInterval = 50 * time.Millisecond
	// findInterval is the time between two searches for the cgroup with the tightest limit.
	findInterval = 10 * time.Second
	// stopWait is the longest time that the end waits for a file that hangs.
	stopWait = time.Second
	// maxProcesses limits the processes that are sampled.
	maxProcesses = 1024
	// maxMissing limits the reasons in Missing.
	maxMissing = 32
)

// Sink takes rows of class host. SendHost must not block, and takes over their memory.
type Sink interface{ SendHost(rows []format.Row) }

// Options are the options of a Recorder.
type Options struct {
	Sink  Sink
	Clock clock.Clock
	// Processes returns the start times of the recorded processes, by PID. It must be fast.
	Processes func() map[int]int64
}

// Recorder samples metrics. The goroutine of Run owns all members but those below mu.
type Recorder struct {
	options   Options
	mountInfo string // the file with the mounts
	mounts    []mount
	counters  *rows.Counters
	processes map[int]*target
	limits    map[string]*limitFile // by folder of the cgroup
	pending   []format.Row

	mu      sync.Mutex
	missing []string
	cpuNs   int64
	// isGivenUp says that Run has returned although a file hangs: nothing may be sent.
	isGivenUp bool
}

// target is a process.
type target struct {
	*process.Process
	foundNs int64 // time of the last search for its cgroups
	limit   *limitFile
	memory  cgroup // its cgroup v2, for the pressure on memory
}

// limitFile is the open cpu.stat of a cgroup with a limit.
type limitFile struct {
	limited
	stat *os.File
}

// New returns a Recorder that samples nothing before Run.
func New(o Options) *Recorder {
	return &Recorder{
		options: o, mountInfo: "/proc/self/mountinfo", counters: rows.NewCounters(), processes: make(map[int]*target),
		limits: make(map[string]*limitFile),
	}
}

// Run samples until stop is closed. It sends the last rows before it returns, unless a file hangs.
func (r *Recorder) Run(stop <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.sampleUntil(stop)
	}()
	<-stop
	select {
	case <-done:
	case <-time.After(stopWait):
		r.mu.Lock()
		r.isGivenUp = true
		r.mu.Unlock()
		r.miss("metrics of the host: a file of /proc or of a cgroup hangs")
	}
}

// sampleUntil samples until stop is closed.
func (r *Recorder) sampleUntil(stop <-chan struct{}) {
	text, err := readFile(r.mountInfo)
	if err != nil {
		r.miss(fmt.Sprintf("CPU limits: %v", err))
	}
	r.mounts = parseMounts(text)
	next := time.Now()
	for {
		interval := throttleInterval
		r.measure(func() {
			if now := time.Now(); !now.Before(next) {
				r.sampleAll()
				next = now.Add(sampleInterval)
			} else {
				r.sampleLimits(false)
			}
		})
		if len(r.limits) == 0 {
			interval = time.Until(next)
		}
		if clock.Sleep(stop, min(interval, time.Until(next))) {
			break
		}
	}
	r.measure(r.end)
}

// measure runs a part, adds its CPU time and sends its rows.
func (r *Recorder) measure(part func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID)
	part()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) > 0 && !r.isGivenUp {
		r.options.Sink.SendHost(r.pending)
	}
	r.pending = nil
	r.cpuNs += clock.ReadNs(unix.CLOCK_THREAD_CPUTIME_ID) - before
}

// sampleAll samples all metrics.
func (r *Recorder) sampleAll() {
	r.updateProcesses()
	for _, p := range r.processes {
		if now := r.options.Clock.NowNs(); p.foundNs == 0 || now-p.foundNs >= findInterval.Nanoseconds() {
			r.findCgroups(p)
			p.foundNs = now
		}
		r.sampleProcess(p)
	}
	r.closeUnusedLimits()
	r.sampleLimits(true)
	for _, p := range machinePressures {
		r.samplePressure(rows.Sample{Name: p.metric}, path.Join("/proc/pressure", p.file))
	}
}

// end samples all metrics for the last time.
func (r *Recorder) end() {
	r.sampleAll()
	for _, p := range r.processes {
		r.forget(p)
	}
	r.pending = r.counters.End(r.pending, 0)
	r.closeUnusedLimits()
}

// updateProcesses opens new processes, and forgets those that have ended.
func (r *Recorder) updateProcesses() {
	pids := r.options.Processes()
	for pid, p := range r.processes {
		if _, ok := pids[pid]; !ok || !p.Alive() {
			r.forget(p)
		}
	}
	for pid := range pids {
		if r.processes[pid] != nil {
			continue
		}
		if len(r.processes) >= maxProcesses {
			r.miss(fmt.Sprintf("metrics of the host: more than %d processes", maxProcesses))
			return
		}
		if p, err := process.Open(pid); err == nil { // otherwise it has ended
			r.processes[pid] = &target{Process: p}
		}
	}
}

// forget sends the last rows of a process.
func (r *Recorder) forget(p *target) {
	r.pending = r.counters.End(r.pending, int32(p.Pid))
	p.Close()
	delete(r.processes, p.Pid)
}

// findCgroups finds the cgroups of a process.
func (r *Recorder) findCgroups(p *target) {
	p.limit = nil
	text, err := readFile(p.Path("cgroup"))
	if err != nil {
		return // it has ended
	}
	of := parseMembership(text)
	p.memory, _ = findV2(r.mounts, of)
	tightest, ok, unseen := findLimit(r.mounts, of)
	if unseen {
		r.miss(fmt.Sprintf("CPU limits of process %d: a cgroup of it is not visible here", p.Pid))
	}
	if ok {
		p.limit = r.openLimit(tightest)
	}
}

// openLimit returns the open file of a cgroup with a limit, or nil.
func (r *Recorder) openLimit(l limited) *limitFile {
	if known := r.limits[l.dir]; known != nil {
		known.cores = l.cores
		return known
	}
	stat, err := os.Open(path.Join(l.dir, "cpu.stat"))
	if err != nil {
		r.miss(fmt.Sprintf("CPU limit of cgroup %s: %v", l.path, err))
		return nil
	}
	f := &limitFile{limited: l, stat: stat}
	r.limits[l.dir] = f
	return f
}

// closeUnusedLimits closes the files of cgroups that no process uses.
func (r *Recorder) closeUnusedLimits() {
	for dir, l := range r.limits {
		isUsed := false
		for _, p := range r.processes {
			isUsed = isUsed || p.limit == l
		}
		if !isUsed {
			l.stat.Close()
			delete(r.limits, dir)
		}
	}
}

// sampleProcess samples the metrics of a process that change with it.
func (r *Recorder) sampleProcess(p *target) {
	pid := int32(p.Pid)
	text, err := readFile(p.Path("io"))
	if errors.Is(err, fs.ErrPermission) {
		r.miss(fmt.Sprintf("bytes read and written by process %d: no permission", p.Pid))
	}
	if read, written, ok := parseIO(text); err == nil && ok {
		r.add(rows.Sample{Pid: pid, Name: format.HostReadBytes, Value: float64(read)})
		r.add(rows.Sample{Pid: pid, Name: format.HostWriteBytes, Value: float64(written)})
	}
	if p.memory.dir != "" {
		sample := rows.Sample{Pid: pid, Name: format.HostMemoryPressure, Message: p.memory.path}
		r.samplePressure(sample, path.Join(p.memory.dir, "memory.pressure"))
	}
	if p.limit == nil {
		return
	}
	if cores, ok := p.limit.limit(); ok {
		p.limit.cores = cores
	} else {
		p.foundNs = 0 // look for another limit
	}
	r.add(rows.Sample{Pid: pid, Name: format.HostCPULimit, Message: p.limit.path, Value: p.limit.cores})
}

// sampleLimits samples the limits of all cgroups. isAll selects all their metrics. Otherwise only the time is
// sampled for which a limit stopped threads: periods pass all the time.
func (r *Recorder) sampleLimits(isAll bool) {
	for _, l := range r.limits {
		text, err := rereadFile(l.stat)
		now, ok := parseThrottling(text)
		if err != nil || !ok {
			continue // the cgroup was removed
		}
		for _, p := range r.processes {
			if p.limit != l {
				continue
			}
			r.addThrottling(p, format.HostThrottledNs, now.throttledNs)
			if isAll {
				r.addThrottling(p, format.HostThrottled, now.throttled)
				r.addThrottling(p, format.HostPeriods, now.periods)
			}
		}
	}
}

// addThrottling adds the sample of a process's limit.
func (r *Recorder) addThrottling(p *target, name string, value int64) {
	r.add(rows.Sample{Pid: int32(p.Pid), Name: name, Message: p.limit.path, Value: float64(value)})
}

// samplePressure samples a file with pressure stall information.
func (r *Recorder) samplePressure(s rows.Sample, file string) {
	text, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) && s.Pid == 0 {
		r.miss("pressure on CPU, memory and disks: the kernel has no /proc/pressure; boot it with psi=1")
	}
	if ns, ok := parsePressure(text); err == nil && ok {
		s.Value = float64(ns)
		r.add(s)
	}
}

// add adds a sample.
func (r *Recorder) add(s rows.Sample) {
	r.pending = r.counters.Append(r.pending, r.options.Clock.NowNs(), s)
}

// miss notes what is not recorded. It is safe for concurrent use.
func (r *Recorder) miss(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.missing) < maxMissing && !slices.Contains(r.missing, why) {
		r.missing = append(r.missing, why)
	}
}

// Missing names what was not recorded, and why. It is safe for concurrent use.
func (r *Recorder) Missing() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.missing)
}

// Cost returns the CPU time of the samples, without wake-ups. It is safe for concurrent use.
func (r *Recorder) Cost() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration(r.cpuNs)
}

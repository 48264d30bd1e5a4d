package trigger

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/liveset"
)

// maxEntries bounds each table of Rows: programs can make any number of contexts and threads.
const maxEntries = 4096

// resultOutOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const resultOutOfMemory = 2

// stickyResults are the results after which no call of a context succeeds.
var stickyResults = map[int32]string{
	214: "CUDA_ERROR_ECC_UNCORRECTABLE",
	220: "CUDA_ERROR_NVLINK_UNCORRECTABLE",
	700: "CUDA_ERROR_ILLEGAL_ADDRESS",
	710: "CUDA_ERROR_ASSERT",
	714: "CUDA_ERROR_HARDWARE_STACK_ERROR",
	715: "CUDA_ERROR_ILLEGAL_INSTRUCTION",
	716: "CUDA_ERROR_MISALIGNED_ADDRESS",
	717: "CUDA_ERROR_INVALID_ADDRESS_SPACE",
	718: "CUDA_ERROR_INVALID_PC",
	719: "CUDA_ERROR_LAUNCH_FAILED",
}

// Rows finds events in the rows of a recording. Successful calls cost one comparison each. Only Job is
// safe for concurrent use.
type Rows struct {
	kinds  map[Kind]bool
	limits Thresholds
	severe func(code int64) bool
	fire   func(Event)

	mu   sync.Mutex // guards jobs
	jobs map[int32]string

	failed []failedAllocation
	broken map[context]bool // contexts with a sticky error
	gpus   map[int32]*gpuState
	leaks  leaks
	slow   slowness
}

// failedAllocation is a call that found too little memory, and that was not repeated with success yet.
type failedAllocation struct {
	pid, tid int32
	bytes    int64
	atNs     int64
	name     string
	device   int32
}

// context identifies a context of a process.
type context struct {
	pid    int32
	handle int64
}

// NewRows returns a Rows for these kinds. It calls fire for each event. isSevere says which Xids fire.
func NewRows(kinds []Kind, limits Thresholds, isSevere func(code int64) bool, fire func(Event)) *Rows {
	r := &Rows{
		kinds: make(map[Kind]bool), limits: limits, severe: isSevere, fire: fire,
		broken: make(map[context]bool), gpus: make(map[int32]*gpuState),
		jobs: make(map[int32]string), leaks: newLeaks(), slow: newSlowness(),
	}
	for _, k := range kinds {
		r.kinds[k] = true
	}
	return r
}

// FollowMemory makes Leak fire for the driver memory of processes in a set. Rows reads the set in WatchTime, in the
// goroutine that changes it.
func (r *Rows) FollowMemory(live *liveset.Set) { r.leaks.live = live }

// WatchRows looks at rows of one class.
func (r *Rows) WatchRows(c format.Class, rows []format.Row) {
	switch c {
	case format.ClassFact:
		for i := range rows {
			switch {
			case rows[i].Kind == format.KindProcess:
				r.onProcess(&rows[i])
			case rows[i].Kind == format.KindNote && rows[i].Name == format.NoteSampling:
				r.slow.interruptLaunches()
			}
		}
	case format.ClassMemory:
		for i := range rows {
			if row := &rows[i]; row.Result != 0 {
				r.onMemoryError(row)
				r.onError(row)
			} else if len(r.failed) > 0 {
				r.onSuccess(row)
			}
		}
	case format.ClassCall:
		for i := range rows {
			if rows[i].Result != 0 {
				r.onError(&rows[i])
			}
			if r.kinds[Slow] {
				r.onCall(&rows[i])
			}
		}
	case format.ClassAllocator:
		for i := range rows {
			if rows[i].Name == format.AllocatorOOM {
				r.onAllocatorOOM(&rows[i])
			}
			if r.kinds[Leak] {
				r.leaks.onAllocator(&rows[i])
			}
		}
	case format.ClassSample:
		for i := range rows {
			r.onSample(&rows[i])
		}
	}
}

// WatchTime fires events that depend on what did not happen until now, Unix ns.
func (r *Rows) WatchTime(nowNs int64) {
	if r.kinds[Leak] {
		r.findLeaks(nowNs)
	}
	r.failed = slices.DeleteFunc(r.failed, func(f failedAllocation) bool {
		if nowNs-f.atNs < r.limits.Retry.Nanoseconds() {
			return false
		}
		r.fire(Event{
			Kind:    OOM,
			AtNs:    f.atNs,
			Pid:     f.pid,
			Subject: fmt.Sprint(f.pid),
			Evidence: fmt.Sprintf(
				"%s of %s found too little memory, and thread %d did not retry with success within %v",
				f.name,
				bytesText(f.bytes),
				f.tid,
				r.limits.Retry,
			),
		})
		return true
	})
}

// processFact is the part of the message of a process row that Rows needs.
type processFact struct {
	Identity   *format.Identity `json:"identity"`
	ExitNs     int64            `json:"exit_ns"`
	ExitSignal int              `json:"exit_signal"`
}

// fatalSignals end a process abnormally.
var fatalSignals = map[int]string{6: "SIGABRT", 7: "SIGBUS", 9: "SIGKILL", 11: "SIGSEGV"}

// onProcess notes the job of a process, and fires if a signal ended it.
func (r *Rows) onProcess(row *format.Row) {
	var fact processFact
	if json.Unmarshal([]byte(row.Message), &fact) != nil {
		return
	}
	if id := fact.Identity; id != nil && id.Job != "" {
		r.setJob(row.Pid, id)
	}
	r.leaks.forget(row.Pid) // it has ended, has begun, or has called exec
	r.slow.forget(row.Pid)
	name, fatal := fatalSignals[fact.ExitSignal]
	if fact.ExitNs == 0 || !fatal || !r.kinds[Exit] {
		return
	}
	r.fire(Event{
		Kind: Exit, AtNs: fact.ExitNs, Pid: row.Pid, Subject: "",
		Evidence: fmt.Sprintf("process %d (%s) was ended by %s", row.Pid, row.Name, name),
	})
}

func (r *Rows) setJob(pid int32, id *format.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.jobs) == maxEntries {
		clear(r.jobs)
	}
	r.jobs[pid] = id.Job
	if id.Attempt != nil && *id.Attempt > 0 {
		r.jobs[pid] = fmt.Sprintf("%s attempt %d", id.Job, *id.Attempt)
	}
}

// Job returns the job of a process, UnknownJob if it is not known. Safe for concurrent use.
func (r *Rows) Job(pid int32) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if job, ok := r.jobs[pid]; ok {
		return job
	}
	return UnknownJob
}

// UnknownJob is the job of processes without a known one.
const UnknownJob = "-"

// onMemoryError notes an allocation that found too little memory.
func (r *Rows) onMemoryError(row *format.Row) {
	if row.Result != resultOutOfMemory || !r.kinds[OOM] || len(r.failed) == maxEntries {
		return
	}
	again := func(f failedAllocation) bool { return f.tid == row.Tid && f.bytes == row.Bytes }
	if slices.ContainsFunc(r.failed, again) {
		return // the first failure counts
	}
	r.failed = append(r.failed, failedAllocation{
		row.Pid, row.Tid, row.Bytes, row.StartNs + row.DurNs, row.Name, row.Device,
	})
}

// onSuccess forgets failed allocations that the thread has repeated with success.
func (r *Rows) onSuccess(row *format.Row) {
	if row.Kind != format.KindAlloc {
		return
	}
	r.failed = slices.DeleteFunc(r.failed, func(f failedAllocation) bool {
		return f.tid == row.Tid && f.bytes == row.Bytes && row.StartNs+row.DurNs-f.atNs < r.limits.Retry.Nanoseconds()
	})
}

// onError fires at the first sticky error of a context.
func (r *Rows) onError(row *format.Row) {
	name, sticky := stickyResults[row.Result]
	if !sticky || !r.kinds[Sticky] {
		return
	}
	c := context{row.Pid, row.Context}
	if r.broken[c] || len(r.broken) == maxEntries {
		return
	}
	r.broken[c] = true
	r.fire(Event{
		Kind: Sticky, AtNs: row.StartNs + row.DurNs, Pid: row.Pid, Subject: fmt.Sprintf("%d %x", row.Pid, row.Context),
		Evidence: fmt.Sprintf("%s returned %s (%d), the first such error of its context",
			row.Name, name, row.Result),
	})
}

// onAllocatorOOM fires when the allocator of a framework gives up.
func (r *Rows) onAllocatorOOM(row *format.Row) {
	if !r.kinds[OOM] {
		return
	}
	r.failed = slices.DeleteFunc(r.failed, func(f failedAllocation) bool { return f.tid == row.Tid })
	r.fire(Event{
		Kind: OOM, AtNs: row.StartNs, Pid: row.Pid, Subject: fmt.Sprint(row.Pid),
		Evidence: fmt.Sprintf("PyTorch could not allocate %s on device %d with %s free",
			bytesText(row.Bytes), row.Device, bytesText(int64(row.Value))),
	})
}

// onSample looks at a row of class sample.
func (r *Rows) onSample(row *format.Row) {
	switch row.Kind {
	case format.KindXid:
		r.onXid(row)
	case format.KindNVML:
		r.onMetric(row)
	}
}

// onXid fires at an Xid that is severe, and at a fatal error of an NVSwitch.
func (r *Rows) onXid(row *format.Row) {
	var fact format.XidFact
	if !r.kinds[Xid] || json.Unmarshal([]byte(row.Message), &fact) != nil || fact.Before {
		return
	}
	severe, name := r.severe(int64(row.Value)), "Xid"
	if row.Name == format.NameSXid {
		severe, name = strings.HasPrefix(fact.Text, "Fatal"), "SXid"
	}
	if !severe {
		return
	}
	r.fire(Event{
		Kind: Xid, AtNs: row.StartNs, Pid: row.Pid, Subject: fmt.Sprintf("%s %s %.0f", fact.PCI, name, row.Value),
		Evidence: fmt.Sprintf("%s %.0f of GPU %s: %s", name, row.Value, fact.PCI, fact.Text),
	})
}

// gpuState is the state of a GPU.
type gpuState struct {
	throttledSince, idleSince int64 // Unix ns; 0: it is not
	usedBytes                 float64
	activeByGPM               bool // SM activity is known, so utilization is ignored
	firedThrottle, firedIdle  bool // since it began
}

// Thresholds of GPUs.
const (
	hardwareReasons = 8 | 64 | 128 // bits of clock_event_reasons
	idlePct         = 5            // activity in percent
	heldBytes       = 1 << 30      // memory in use
)

// onMetric follows the state of a GPU.
func (r *Rows) onMetric(row *format.Row) {
	if !r.kinds[Throttle] && !r.kinds[Idle] {
		return
	}
	g := r.gpus[row.Device]
	if g == nil {
		if len(r.gpus) == maxEntries {
			return
		}
		g = new(gpuState)
		r.gpus[row.Device] = g
	}
	switch row.Name {
	case "clock_event_reasons":
		r.onClockReasons(g, row)
	case "memory_used_bytes":
		g.usedBytes = row.Value
	case "gpm_sm_active_percent":
		g.activeByGPM = true
		r.onActivity(g, row)
	case "gpu_utilization_percent":
		if !g.activeByGPM {
			r.onActivity(g, row)
		}
	}
}

// onClockReasons fires when the hardware has reduced the clocks for some time.
func (r *Rows) onClockReasons(g *gpuState, row *format.Row) {
	switch {
	case int64(row.Value)&hardwareReasons == 0:
		g.throttledSince, g.firedThrottle = 0, false
	case g.throttledSince == 0:
		g.throttledSince = row.StartNs
	case !g.firedThrottle && r.kinds[Throttle] && row.StartNs-g.throttledSince >= r.limits.Throttle.Nanoseconds():
		g.firedThrottle = true
		r.fire(Event{
			Kind: Throttle, AtNs: row.StartNs, FromNs: g.throttledSince, Subject: fmt.Sprint(row.Device),
			Evidence: fmt.Sprintf("the hardware has reduced the clocks of GPU %d for %v (reasons %.0f)", row.Device,
				time.Duration(row.StartNs-g.throttledSince).Round(time.Millisecond), row.Value),
		})
	}
}

// onActivity fires when a GPU has done nothing for some time, although its memory is in use.
func (r *Rows) onActivity(g *gpuState, row *format.Row) {
	switch {
	case row.Value >= idlePct || g.usedBytes < heldBytes:
		g.idleSince, g.firedIdle = 0, false
	case g.idleSince == 0:
		g.idleSince = row.StartNs
	case !g.firedIdle && r.kinds[Idle] && row.StartNs-g.idleSince >= r.limits.Idle.Nanoseconds():
		g.firedIdle = true
		r.fire(Event{
			Kind: Idle, AtNs: row.StartNs, FromNs: g.idleSince, Subject: fmt.Sprint(row.Device),
			Evidence: fmt.Sprintf("GPU %d was active for less than %d %% of %v while %s of its memory were in use",
				row.Device, idlePct, time.Duration(row.StartNs-g.idleSince).Round(time.Millisecond),
				bytesText(int64(g.usedBytes))),
		})
	}
}

// bytesText returns a size with a binary unit.
func bytesText(n int64) string {
	value, unit := float64(n), 0
	for value >= 1024 && unit < 4 {
		value /= 1024
		unit++
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, [...]string{"", "KiB", "MiB", "GiB", "TiB"}[unit])
}

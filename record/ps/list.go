//go:build linux

package ps

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/nvml"
	"github.com/gpurec/gpurec/record/process"
)

// Process is a process that uses CUDA: it has mapped libcuda, or NVML lists it as a compute
// process. Values that could not be read are empty and absent in JSON.
type Process struct {
	Pid  int    `json:"pid"`
	User string `json:"user,omitempty"` // also "" if the UID has no name
	UID  *int   `json:"uid,omitempty"`
	// Command is the name of the main thread, at most 15 bytes. Options.Comm compares it.
	Command     string   `json:"command,omitempty"`
	CommandLine []string `json:"command_line,omitempty"` // first 16 KiB
	// GPUs are the GPUs on which NVML lists the process, by index. nil means unknown.
	GPUs []nvml.GPUUse `json:"gpus,omitzero"`
	// Identity is the role of the process in its job: rank, world size, job, Kubernetes names.
	format.Identity
	ContainerID string `json:"container_id,omitempty"` // 64 hexadecimal digits
	// Cgroup is the cgroup v2 path, as Options.Cgroup expects it.
	Cgroup string `json:"cgroup,omitempty"`
	// StartedUnixNs is the start of the process in Unix ns, rounded to 10 ms.
	StartedUnixNs int64 `json:"started_unix_ns,omitempty"`
}

// IsInCgroup reports whether the process is in the cgroup v2 with this path or in a descendant of
// it.
func (p *Process) IsInCgroup(cgroup string) bool {
	return p.Cgroup != "" && process.IsCgroupBelow(p.Cgroup, cgroup)
}

// Listing is the result of List.
type Listing struct {
	// Processes are ordered by their first GPU, then by pid. Processes without GPU are last.
	Processes []Process
	// Denied counts processes whose mappings this user may not read and that NVML does not list.
	// They may use CUDA.
	Denied int
	// Unanswered are processes whose data could not be read in time: the kernel has locked their
	// memory, so they hang in a system call. They may use CUDA.
	Unanswered []int
	// Unseen counts processes that NVML lists but /proc does not show: they have ended, or they are
	// hidden from this user or pid namespace.
	Unseen int
	// NVMLErr is the reason why GPUs are unknown or incomplete, or nil.
	NVMLErr error
}

// ErrOtherPidNamespace is the error if NVML lists processes by pids of the host, which differ from
// the pids in this pid namespace.
var ErrOtherPidNamespace = errors.New("NVML has the process numbers of the host, not those of this container")

// errNoContainerProcess is the error if NVML lists no process of a container, as with older
// drivers.
var errNoContainerProcess = errors.New("NVML lists no process of this container")

// errNVMLTimeout is the error if NVML did not answer in time.
var errNVMLTimeout = fmt.Errorf("NVML did not answer within %v", listTimeout)

const (
	// listTimeout is the longest time that List waits for processes, and for NVML.
	listTimeout = 3 * time.Second
	// maxSMSampleAge is the largest age of a sample of SM utilization that List uses.
	maxSMSampleAge = 3 * time.Second
	// maxConcurrentReads is the number of processes that are read at the same time. Some reads may
	// block forever.
	maxConcurrentReads = 64
)

// List returns the processes that use CUDA now, without this process. With gpus it queries NVML for
// GPUs, memory and SM utilization; otherwise Process.GPUs is nil. It attaches no probes and needs
// no privileges for the user's own processes. It returns within 6 s.
func List(gpus bool) Listing {
	l := processLister{
		pids:            process.AllPids,
		read:            readProcess,
		query:           func() ([]nvml.GPUUser, error) { return nvml.ListGPUUsers(maxSMSampleAge) },
		isHostNamespace: isHostPidNamespace(),
		patience:        listTimeout,
	}
	return l.listProcesses(gpus)
}

// processLister holds the functions that List calls, so that tests can replace them.
type processLister struct {
	pids func() []int
	// read reads a process. A process that NVML does not list must have mapped libcuda.
	read            func(pid int, listed bool) processResult
	query           func() ([]nvml.GPUUser, error)
	isHostNamespace bool
	patience        time.Duration
}

// processResult is the result of reading a process.
type processResult struct {
	process Process
	uses    bool // whether the process uses CUDA; otherwise process is empty
	denied  bool // whether this user may not read the process
}

// listProcesses returns the processes that use CUDA.
func (l processLister) listProcesses(gpus bool) Listing {
	answers := make(chan gpuAnswer, 1) // buffered: a late answer must not block the goroutine
	deadline := time.Now().Add(l.patience)
	if gpus {
		go func() {
			users, err := l.query()
			answers <- gpuAnswer{users, err}
		}()
	}
	results, unanswered := l.readProcesses(l.pids(), false, deadline)
	if !gpus {
		return assembleListing(results, unanswered, nil, nil, gpus)
	}
	users, err := l.checkPidNamespace(awaitGPUAnswer(answers, deadline), results)
	var listed []int // processes that only NVML lists
	for _, u := range users {
		if !results[u.Pid].uses && !slices.Contains(unanswered, u.Pid) && !slices.Contains(listed, u.Pid) {
			listed = append(listed, u.Pid)
		}
	}
	more, late := l.readProcesses(listed, true, time.Now().Add(l.patience))
	maps.Copy(results, more)
	return assembleListing(results, append(unanswered, late...), users, err, gpus)
}

// gpuAnswer is the result of querying NVML.
type gpuAnswer struct {
	users []nvml.GPUUser
	err   error
}

// awaitGPUAnswer returns the result of querying NVML, or errNVMLTimeout after the deadline.
func awaitGPUAnswer(answers <-chan gpuAnswer, deadline time.Time) gpuAnswer {
	select {
	case a := <-answers:
		return a
	case <-time.After(time.Until(deadline)):
	}
	select {
	case a := <-answers: // the answer and the deadline came together
		return a
	default:
		return gpuAnswer{err: errNVMLTimeout}
	}
}

// checkPidNamespace checks that NVML's pids are pids of this pid namespace. In a container's
// namespace, each pid must be that of a process that has mapped libcuda, and the list must not be
// empty. Otherwise translate returns no users and an error.
func (l processLister) checkPidNamespace(a gpuAnswer, results map[int]processResult) ([]nvml.GPUUser, error) {
	if l.isHostNamespace || a.err != nil && len(a.users) == 0 {
		return a.users, a.err
	}
	isForeign := func(u nvml.GPUUser) bool { return !results[u.Pid].uses }
	if slices.ContainsFunc(a.users, isForeign) {
		return nil, errors.Join(ErrOtherPidNamespace, a.err)
	}
	for _, result := range results {
		if result.uses && len(a.users) == 0 {
			return nil, errNoContainerProcess
		}
	}
	return a.users, a.err
}

// readProcesses reads processes concurrently until the deadline. late are the processes that were
// not read in time.
func (l processLister) readProcesses(
	pids []int,
	listed bool,
	deadline time.Time,
) (results map[int]processResult, late []int) {
	type answer struct {
		pid int
		processResult
	}
	answers := make(chan answer, len(pids)) // buffered: late answers must not block
	slots := make(chan struct{}, maxConcurrentReads)
	for _, pid := range pids {
		go func() {
			slots <- struct{}{}
			answers <- answer{pid, l.read(pid, listed)}
			<-slots
		}()
	}
	results = make(map[int]processResult, len(pids))
	timeout := time.After(time.Until(deadline))
	for range pids {
		select {
		case a := <-answers:
			results[a.pid] = a.processResult
		case <-timeout:
			for _, pid := range pids {
				if _, ok := results[pid]; !ok {
					late = append(late, pid)
				}
			}
			return results, late
		}
	}
	return results, nil
}

// assembleListing combines the results of reading processes and of querying NVML.
func assembleListing(
	results map[int]processResult,
	unanswered []int,
	users []nvml.GPUUser,
	err error,
	gpus bool,
) Listing {
	list := Listing{Unanswered: unanswered, NVMLErr: err}
	slices.Sort(list.Unanswered)
	uses := make(map[int][]nvml.GPUUse)
	for _, u := range users {
		uses[u.Pid] = append(uses[u.Pid], u.Use)
	}
	for pid, result := range results {
		switch {
		case result.uses:
			p := result.process
			if p.GPUs = uses[pid]; p.GPUs == nil && gpus && err == nil {
				p.GPUs = []nvml.GPUUse{} // known to use no GPU
			}
			list.Processes = append(list.Processes, p)
		case result.denied:
			list.Denied++
		}
	}
	for pid := range uses {
		if !results[pid].uses && !slices.Contains(unanswered, pid) {
			list.Unseen++
		}
	}
	slices.SortFunc(list.Processes, compareByGPU)
	return list
}

// compareByGPU compares processes by their first GPU, then by pid. Processes without GPU are last.
func compareByGPU(a, b Process) int {
	first := func(p Process) int {
		if len(p.GPUs) == 0 {
			return int(^uint(0) >> 1)
		}
		return p.GPUs[0].Index
	}
	return slices.Compare([]int{first(a), a.Pid}, []int{first(b), b.Pid})
}

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

// Process is a process that uses CUDA: it has libcuda mapped, or NVML lists it as computing.
// What could not be read is empty, and absent from its JSON.
type Process struct {
	Pid  int    `json:"pid"`
	User string `json:"user,omitempty"` // "" also if the UID has no name
	UID  *int   `json:"uid,omitempty"`
	// Command is the name of the main thread, 15 bytes at most, as Options.Comm compares it.
	Command     string   `json:"command,omitempty"`
	CommandLine []string `json:"command_line,omitempty"` // its first 16 KiB
	// GPUs are those on which NVML lists the process, by index; nil if that is unknown.
	GPUs []nvml.GPUUse `json:"gpus,omitzero"`
	// Identity is the process's place in its job: rank, world size, job, Kubernetes names.
	format.Identity
	ContainerID string `json:"container_id,omitempty"` // 64 hexadecimal digits
	// Cgroup is the path in cgroup v2, as Options.Cgroup takes it.
	Cgroup string `json:"cgroup,omitempty"`
	// StartedUnixNs is the start of the process, to 10 ms.
	StartedUnixNs int64 `json:"started_unix_ns,omitempty"`
}

// IsIn reports whether the process is in the cgroup v2 of this path or below it.
func (p *Process) IsIn(cgroup string) bool {
	return p.Cgroup != "" && process.IsBelow(p.Cgroup, cgroup)
}

// Listing is the result of List.
type Listing struct {
	// Processes are ordered by their first GPU, those without one last, then by pid.
	Processes []Process
	// Denied counts processes of other users whose mappings this user may not read and which
	// NVML does not list: they may use CUDA or not.
	Denied int
	// Unanswered are processes that could not be read in time, because the kernel has their
	// memory locked: they hang in a system call. They may use CUDA or not.
	Unanswered []int
	// Unseen counts processes that NVML lists and /proc does not show: they have ended, or are
	// hidden from this user or pid namespace.
	Unseen int
	// NVMLErr says why GPUs are unknown or incomplete; nil if NVML answered in full.
	NVMLErr error
}

// ErrOtherNamespace: NVML names processes by their numbers on the host, which this pid namespace
// does not have.
var ErrOtherNamespace = errors.New("NVML has the process numbers of the host, not those of this container")

// errNoneOfContainer says why the GPUs of processes in a container are unknown: older drivers list
// no processes there.
var errNoneOfContainer = errors.New("NVML lists no process of this container")

// errNVMLHangs says that NVML did not answer in time.
var errNVMLHangs = fmt.Errorf("NVML did not answer within %v", listPatience)

const (
	// listPatience is how long List waits for processes and for NVML.
	listPatience = 3 * time.Second
	// smWindow is the age up to which a sample of SM utilization counts as of now.
	smWindow = 3 * time.Second
	// maxConcurrentReads bounds the processes that are read at one time. Some may block for good.
	maxConcurrentReads = 64
)

// List returns the processes that use CUDA now, without this one. With gpus it asks NVML for GPUs,
// memory and SM utilization; else Process.GPUs is nil. It attaches to nothing, needs no privilege
// for the user's own processes, and returns within 6 s.
func List(gpus bool) Listing {
	l := lister{
		pids: process.AllPids, read: readProcess, query: func() ([]nvml.User, error) { return nvml.Users(smWindow) },
		isHostNamespace: isHostPidNamespace(), patience: listPatience,
	}
	return l.list(gpus)
}

// lister holds what List reads; tests replace it.
type lister struct {
	pids func() []int
	// look reads a process. If it is not listed by NVML, it must have libcuda mapped.
	read            func(pid int, listed bool) readResult
	query           func() ([]nvml.User, error)
	isHostNamespace bool
	patience        time.Duration
}

// look is the result of reading a process.
type readResult struct {
	process Process
	uses    bool // it uses CUDA, and process is filled in
	denied  bool // it may not be read
}

func (l lister) list(gpus bool) Listing {
	answers := make(chan gpuAnswer, 1) // lets the goroutine end if the answer comes too late
	deadline := time.Now().Add(l.patience)
	if gpus {
		go func() {
			users, err := l.query()
			answers <- gpuAnswer{users, err}
		}()
	}
	results, unanswered := l.readAll(l.pids(), false, deadline)
	if !gpus {
		return assemble(results, unanswered, nil, nil, gpus)
	}
	users, err := l.translate(await(answers, deadline), results)
	var listed []int // by NVML alone
	for _, u := range users {
		if !results[u.Pid].uses && !slices.Contains(unanswered, u.Pid) && !slices.Contains(listed, u.Pid) {
			listed = append(listed, u.Pid)
		}
	}
	more, late := l.readAll(listed, true, time.Now().Add(l.patience))
	maps.Copy(results, more)
	return assemble(results, append(unanswered, late...), users, err, gpus)
}

// gpuAnswer is what NVML answers.
type gpuAnswer struct {
	users []nvml.User
	err   error
}

// await returns NVML's answer, or errNVMLHangs if there is none by the deadline.
func await(answers <-chan gpuAnswer, deadline time.Time) gpuAnswer {
	select {
	case a := <-answers:
		return a
	case <-time.After(time.Until(deadline)):
	}
	select {
	case a := <-answers: // the deadline has passed for other reasons
		return a
	default:
		return gpuAnswer{err: errNVMLHangs}
	}
}

// translate drops users that are not numbered as here. In a pid namespace of a container, numbers
// are trusted only if each is that of a process here that has libcuda mapped, and a list without
// any process is not trusted.
func (l lister) translate(a gpuAnswer, results map[int]readResult) ([]nvml.User, error) {
	if l.isHostNamespace || a.err != nil && len(a.users) == 0 {
		return a.users, a.err
	}
	isForeign := func(u nvml.User) bool { return !results[u.Pid].uses }
	if slices.ContainsFunc(a.users, isForeign) {
		return nil, errors.Join(ErrOtherNamespace, a.err)
	}
	for _, result := range results {
		if result.uses && len(a.users) == 0 {
			return nil, errNoneOfContainer
		}
	}
	return a.users, a.err
}

// lookAt reads processes side by side and returns at the deadline, with those that are late.
func (l lister) readAll(pids []int, listed bool, deadline time.Time) (results map[int]readResult, late []int) {
	type answer struct {
		pid int
		readResult
	}
	answers := make(chan answer, len(pids)) // late ones can be sent too
	slots := make(chan struct{}, maxConcurrentReads)
	for _, pid := range pids {
		go func() {
			slots <- struct{}{}
			answers <- answer{pid, l.read(pid, listed)}
			<-slots
		}()
	}
	results = make(map[int]readResult, len(pids))
	timeout := time.After(time.Until(deadline))
	for range pids {
		select {
		case a := <-answers:
			results[a.pid] = a.readResult
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

// assemble makes the list from the answers of processes and of NVML.
func assemble(results map[int]readResult, unanswered []int, users []nvml.User, err error, gpus bool) Listing {
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
				p.GPUs = []nvml.GPUUse{} // known to be on none
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
	slices.SortFunc(list.Processes, inListOrder)
	return list
}

// inListOrder compares by the first GPU, and none is after all, then by pid.
func inListOrder(a, b Process) int {
	first := func(p Process) int {
		if len(p.GPUs) == 0 {
			return int(^uint(0) >> 1)
		}
		return p.GPUs[0].Index
	}
	return slices.Compare([]int{first(a), a.Pid}, []int{first(b), b.Pid})
}

//go:build linux

package ps

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/nvml"
	"github.com/gpurec/gpurec/record/process"
)

// fakeList returns a lister of simulated processes. Those in use have mapped libcuda, and those in
// denied may not be read.
func fakeList(use, denied []int, users []nvml.GPUUser, err error) processLister {
	return processLister{
		pids: func() []int { return []int{4, 3, 2, 1} },
		read: func(pid int, isListed bool) processResult {
			if slices.Contains(denied, pid) && !isListed {
				return processResult{denied: true}
			}
			return processResult{process: Process{Pid: pid}, uses: pid < 100 && (isListed || slices.Contains(use, pid))}
		},
		query: func() ([]nvml.GPUUser, error) { return users, err }, isHostNamespace: true, patience: 10 * time.Second,
	}
}

func usersOn(gpu int, pids ...int) (users []nvml.GPUUser) {
	for _, pid := range pids {
		users = append(users, nvml.GPUUser{Pid: pid, Use: nvml.GPUUse{Index: gpu}})
	}
	return users
}

// placedOn formats a list as PID:GPU,GPU. "?" means unknown, "none" means no GPU.
func placedOn(list Listing) string {
	var all []string
	for _, p := range list.Processes {
		gpus := []string{}
		for _, g := range p.GPUs {
			gpus = append(gpus, fmt.Sprint(g.Index))
		}
		where := cmp.Or(strings.Join(gpus, ","), "none")
		if p.GPUs == nil {
			where = "?"
		}
		all = append(all, fmt.Sprintf("%d:%s", p.Pid, where))
	}
	return strings.Join(all, " ")
}

func TestListJoinsNVMLAndProc(t *testing.T) {
	testclass.Unit(t)
	broken := errors.New("GPU 1 is lost")
	for name, c := range map[string]struct {
		lister processLister
		want   string
		denied int
		unseen int
		err    error
	}{
		"by GPU, then pid":           {fakeList([]int{1, 2, 3}, nil, slices.Concat(usersOn(0, 3), usersOn(1, 1, 3)), nil), "3:0,1 1:1 2:none", 0, 0, nil},
		"no NVML":                    {fakeList([]int{2, 1}, nil, nil, nvml.ErrNoNVML), "1:? 2:?", 0, 0, nvml.ErrNoNVML},
		"a GPU does not answer":      {fakeList([]int{1, 2}, nil, usersOn(0, 2), broken), "2:0 1:?", 0, 0, broken},
		"others' processes":          {fakeList([]int{1}, []int{2, 3}, usersOn(0, 2), nil), "2:0 1:none", 1, 0, nil},
		"not mapped but listed":      {fakeList(nil, nil, usersOn(0, 4), nil), "4:0", 0, 0, nil},
		"ended since, or hidden":     {fakeList([]int{1}, nil, usersOn(0, 1, 100, 101), nil), "1:0", 0, 2, nil},
		"nothing":                    {fakeList(nil, nil, nil, nil), "", 0, 0, nil},
		"container, translated":      {inContainer(fakeList([]int{1, 2}, nil, usersOn(0, 1), nil)), "1:0 2:none", 0, 0, nil},
		"container, numbers of host": {inContainer(fakeList([]int{1, 2}, nil, usersOn(0, 1, 4242), nil)), "1:? 2:?", 0, 0, ErrOtherPidNamespace},
		"container, none":            {inContainer(fakeList([]int{1}, nil, nil, nil)), "1:?", 0, 0, errNoContainerProcess},
		"container, nothing":         {inContainer(fakeList(nil, nil, nil, nil)), "", 0, 0, nil},
		"container, no NVML":         {inContainer(fakeList([]int{1}, nil, nil, nvml.ErrNoNVML)), "1:?", 0, 0, nvml.ErrNoNVML},
		"container, by chance":       {inContainer(fakeList([]int{1}, nil, usersOn(0, 1, 3), nil)), "1:?", 0, 0, ErrOtherPidNamespace},
	} {
		list := c.lister.listProcesses(true)
		if got := placedOn(
			list,
		); got != c.want || list.Denied != c.denied || list.Unseen != c.unseen ||
			!errors.Is(list.NVMLErr, c.err) {
			t.Errorf("%s: %s; %+v", name, got, list)
		}
	}
}

func inContainer(l processLister) processLister {
	l.isHostNamespace = false
	return l
}

func TestListDoesNotWaitForWhatHangs(t *testing.T) {
	testclass.Unit(t)
	forever := make(chan struct{})
	defer close(forever)
	l := fakeList([]int{1, 2}, nil, usersOn(0, 1), nil)
	whole := l.read
	l.read = func(pid int, isListed bool) processResult {
		if pid >= 3 {
			<-forever
		}
		return whole(pid, isListed)
	}
	l.patience = 200 * time.Millisecond
	if list := l.listProcesses(true); placedOn(list) != "1:0 2:none" || !slices.Equal(list.Unanswered, []int{3, 4}) {
		t.Errorf("%+v", list)
	}
	l.read, l.query = whole, func() ([]nvml.GPUUser, error) { <-forever; return nil, nil }
	if list := l.listProcesses(
		true,
	); placedOn(list) != "1:? 2:?" || !errors.Is(list.NVMLErr, errNVMLTimeout) ||
		list.Unanswered != nil {
		t.Errorf("%+v", list)
	}
}

func BenchmarkList(b *testing.B) {
	for b.Loop() {
		List(false)
	}
	b.ReportMetric(float64(len(process.AllPids())), "processes")
}

// TestListKeysHaveUnits compares the keys of the JSON with a list: programs read them, so they must
// not change.
func TestListKeysHaveUnits(t *testing.T) {
	testclass.Unit(t)
	uid, percent, rank, bytes := 1000, 0, 0, int64(0)
	p := Process{
		Pid:           1,
		User:          "u",
		UID:           &uid,
		Command:       "c",
		CommandLine:   []string{"c"},
		ContainerID:   "i",
		Cgroup:        "/",
		StartedUnixNs: 1,
		GPUs:          []nvml.GPUUse{{UUID: "GPU-1", Name: "n", MemoryBytes: &bytes, SMPercent: &percent}, {Index: 1}},
	}
	p.Rank, p.WorldSize, p.LocalRank, p.Job = &rank, &uid, &rank, "j"
	for _, c := range []struct {
		process Process
		want    string
	}{
		{p, `{"pid":1,"user":"u","uid":1000,"command":"c","command_line":["c"],"gpus":[{"index":0,"uuid":"GPU-1","name":"n","memory_bytes":0,"sm_percent":0},{"index":1}],` +
			`"rank":0,"world_size":1000,"local_rank":0,"job":"j","container_id":"i","cgroup":"/","started_unix_ns":1}`},
		{Process{Pid: 2, GPUs: []nvml.GPUUse{}}, `{"pid":2,"gpus":[]}`},
		{Process{Pid: 3}, `{"pid":3}`},
	} {
		if got, err := json.Marshal(c.process); err != nil || string(got) != c.want {
			t.Errorf("%s, not %s: %v", got, c.want, err)
		}
	}
}

func TestEndedProcessIsNotListed(t *testing.T) {
	testclass.Unit(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if l := readProcess(ended.Process.Pid, true); l.uses {
		t.Errorf("listed: %+v", l.process)
	}
}

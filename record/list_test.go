//go:build linux

package record

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/record/identity"
)

// listed returns the entry of a process, nil if the list has none.
func listed(list ProcessList, pid int) *CUDAProcess {
	for i := range list.Processes {
		if list.Processes[i].Pid == pid {
			return &list.Processes[i]
		}
	}
	return nil
}

// needSimcuda skips tests that run programs on simcuda where it is not built.
func needSimcuda(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(simcudaDir, "libcuda.so.1")); err != nil {
		skip(t, "simcuda is not built: make simcuda")
	}
}

func TestListDescribesProcesses(t *testing.T) {
	needSimcuda(t)
	before := time.Now()
	p := startSim(t, []string{"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1"}, "storm", "--calls", "100", "--wait")
	p.expect("ready")
	other := exec.Command("sleep", "600") // does not use CUDA
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	list := ListProcesses(false)
	got := listed(list, p.pid())
	if got == nil {
		t.Fatalf("process %d is not listed: %+v", p.pid(), list)
	}
	if listed(list, other.Process.Pid) != nil || listed(list, os.Getpid()) != nil {
		t.Error("processes that do not use CUDA are listed")
	}
	path := p.cmd.Path
	if got.Command != "storm" || !slices.Equal(got.CommandLine, []string{path, "--calls", "100", "--wait"}) || *got.UID != os.Getuid() {
		t.Errorf("%+v", got)
	}
	if started := time.Unix(0, got.StartedUnixNs); started.Before(before.Add(-20*time.Millisecond)) || started.After(time.Now()) {
		t.Errorf("started at %v, not after %v", started, before)
	}
	if got.GPUs != nil || list.NVMLErr != nil {
		t.Errorf("NVML was asked: %v, %v", got.GPUs, list.NVMLErr)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.pid()))
	if err != nil {
		t.Fatal(err)
	}
	if path, _ := cgroupPath(string(text)); got.Cgroup != path || path != "" && !got.IsIn(path) {
		t.Errorf("cgroup %q, not %q", got.Cgroup, path)
	}
	if want := identity.Of("RANK=3\x00WORLD_SIZE=8\x00LOCAL_RANK=1\x00", ""); !reflect.DeepEqual(got.Rank, want.Rank) || !reflect.DeepEqual(got.WorldSize, want.WorldSize) {
		t.Errorf("identity %+v, not %+v", got.Identity, want)
	}
	p.finish()
	if l := lookAtProcess(p.pid(), true); l.uses {
		t.Errorf("a process that has ended is listed: %+v", l.process)
	}
}

// fakeList lists processes that are only numbers: those of use have libcuda mapped, those of
// denied may not be read, all others exist.
func fakeList(use, denied []int, users []gpuUser, err error) lister {
	return lister{
		pids: func() []int { return []int{4, 3, 2, 1} },
		look: func(pid int, isListed bool) look {
			if slices.Contains(denied, pid) && !isListed {
				return look{denied: true}
			}
			return look{process: CUDAProcess{Pid: pid}, uses: pid < 100 && (isListed || slices.Contains(use, pid))}
		},
		ask: func() ([]gpuUser, error) { return users, err }, isHostNamespace: true, patience: 10 * time.Second,
	}
}

func on(gpu int, pids ...int) (users []gpuUser) {
	for _, pid := range pids {
		users = append(users, gpuUser{pid, GPUUse{Index: gpu}})
	}
	return users
}

// placedOn writes a list as PID:GPU,GPU; "?" is unknown, "none" is no GPU.
func placedOn(list ProcessList) string {
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
	broken := errors.New("GPU 1 is lost")
	for name, c := range map[string]struct {
		lister lister
		want   string
		denied int
		unseen int
		err    error
	}{
		"by GPU, then pid":           {fakeList([]int{1, 2, 3}, nil, slices.Concat(on(0, 3), on(1, 1, 3)), nil), "3:0,1 1:1 2:none", 0, 0, nil},
		"no NVML":                    {fakeList([]int{2, 1}, nil, nil, ErrNoNVML), "1:? 2:?", 0, 0, ErrNoNVML},
		"a GPU does not answer":      {fakeList([]int{1, 2}, nil, on(0, 2), broken), "2:0 1:?", 0, 0, broken},
		"others' processes":          {fakeList([]int{1}, []int{2, 3}, on(0, 2), nil), "2:0 1:none", 1, 0, nil},
		"not mapped but listed":      {fakeList(nil, nil, on(0, 4), nil), "4:0", 0, 0, nil},
		"ended since, or hidden":     {fakeList([]int{1}, nil, on(0, 1, 100, 101), nil), "1:0", 0, 2, nil},
		"nothing":                    {fakeList(nil, nil, nil, nil), "", 0, 0, nil},
		"container, translated":      {inContainer(fakeList([]int{1, 2}, nil, on(0, 1), nil)), "1:0 2:none", 0, 0, nil},
		"container, numbers of host": {inContainer(fakeList([]int{1, 2}, nil, on(0, 1, 4242), nil)), "1:? 2:?", 0, 0, ErrOtherNamespace},
		"container, none":            {inContainer(fakeList([]int{1}, nil, nil, nil)), "1:?", 0, 0, errNoneOfContainer},
		"container, nothing":         {inContainer(fakeList(nil, nil, nil, nil)), "", 0, 0, nil},
		"container, no NVML":         {inContainer(fakeList([]int{1}, nil, nil, ErrNoNVML)), "1:?", 0, 0, ErrNoNVML},
		"container, by chance":       {inContainer(fakeList([]int{1}, nil, on(0, 1, 3), nil)), "1:?", 0, 0, ErrOtherNamespace},
	} {
		list := c.lister.list(true)
		if got := placedOn(list); got != c.want || list.Denied != c.denied || list.Unseen != c.unseen || !errors.Is(list.NVMLErr, c.err) {
			t.Errorf("%s: %s; %+v", name, got, list)
		}
	}
}

func inContainer(l lister) lister {
	l.isHostNamespace = false
	return l
}

func TestListDoesNotWaitForWhatHangs(t *testing.T) {
	forever := make(chan struct{})
	defer close(forever)
	l := fakeList([]int{1, 2}, nil, on(0, 1), nil)
	whole := l.look
	l.look = func(pid int, isListed bool) look {
		if pid >= 3 {
			<-forever
		}
		return whole(pid, isListed)
	}
	l.patience = 200 * time.Millisecond
	if list := l.list(true); placedOn(list) != "1:0 2:none" || !slices.Equal(list.Unanswered, []int{3, 4}) {
		t.Errorf("%+v", list)
	}
	l.look, l.ask = whole, func() ([]gpuUser, error) { <-forever; return nil, nil }
	if list := l.list(true); placedOn(list) != "1:? 2:?" || !errors.Is(list.NVMLErr, errNVMLHangs) || list.Unanswered != nil {
		t.Errorf("%+v", list)
	}
}

func TestIsDriverMapping(t *testing.T) {
	const at = "7f0000000000-7f0000001000 "
	for line, want := range map[string]bool{
		at + "r-xp 00000000 08:01 42   /usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14\n": true,
		at + "r-xp 00000000 08:01 42   /usr/lib/libcuda.so.1 (deleted)\n":                true,
		at + "r--p 00000000 08:01 42   /usr/lib/libcuda.so.1\n":                          false,
		at + "r-xp 00000000 08:01 42   /usr/lib/libcudart.so.13\n":                       false,
		at + "r-xp 00000000 08:01 42   /tmp/libcuda.so.1/libm.so\n":                      false,
		"/libcuda.so.1\n": false,
	} {
		if got := isDriverMapping([]byte(line)); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

func TestCgroupPaths(t *testing.T) {
	for text, want := range map[string]string{
		"0::/\n": "/", "12:cpu:/a\n0::/user.slice/a b\n": "/user.slice/a b", "4:memory:/docker/x\n": "", "": "",
	} {
		if got, ok := cgroupPath(text); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v", text, got, ok)
		}
	}
	for path, below := range map[string]bool{"/a/b": true, "/a/b/c": true, "/a/bc": false, "/a": false} {
		if isBelow(path, "a/b/") != below || !isBelow(path, "/") {
			t.Errorf("%s", path)
		}
	}
}

func TestKernelComm(t *testing.T) {
	for name, want := range map[string]string{"python": "python", "exactly15bytes_": "exactly15bytes_", "torchrun-launcher": "torchrun-launch", "": ""} {
		if got := KernelComm(name); got != want {
			t.Errorf("%q: %q", name, got)
		}
	}
}

func BenchmarkListProcesses(b *testing.B) {
	for b.Loop() {
		ListProcesses(false)
	}
	b.ReportMetric(float64(len(allPids())), "processes")
}

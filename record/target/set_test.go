//go:build linux

package target

import (
	"bufio"
	"errors"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/process"
)

// startParent starts a shell with a child process, and returns their pids.
func startParent(t *testing.T) (parent, child int) {
	t.Helper()
	shell := exec.Command("sh", "-c", "sleep 1000 & echo $!; wait")
	out, err := shell.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err = strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(child, syscall.SIGKILL) // it may have ended
		_ = shell.Process.Kill()
		_ = shell.Wait()
	})
	return shell.Process.Pid, child
}

func pidsOf(s *Set) (pids []int) {
	for _, p := range s.All() {
		pids = append(pids, p.Pid)
	}
	return pids
}

func TestOpenFindsTheRequestedProcesses(t *testing.T) {
	testclass.Unit(t)
	parent, child := startParent(t)
	for name, c := range map[string]struct {
		opt  Options
		want []int
	}{
		"one process":       {Options{Pids: []int{parent}}, []int{parent}},
		"with its children": {Options{Pids: []int{parent}, Children: true}, []int{parent, child}},
		"a held command":    {Options{CommandPid: child, Children: true}, []int{child}},
		"twice":             {Options{Pids: []int{parent, parent}}, []int{parent}},
	} {
		s, err := Open(c.opt)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		slices.Sort(c.want)
		if got := pidsOf(s); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if oldest := s.Oldest(); oldest == nil || oldest.Pid != append(c.opt.Pids, c.opt.CommandPid)[0] {
			t.Errorf("%s: the oldest process is %+v", name, oldest)
		}
		s.Close()
		if left := s.All(); len(left) != 0 {
			t.Errorf("%s: %d processes after Close", name, len(left))
		}
	}
}

func TestOpenNamesAMissingProcess(t *testing.T) {
	testclass.Unit(t)
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Options{Pids: []int{ended.Process.Pid}})
	var of *process.Error
	if !errors.Is(err, process.ErrNoProcess) || !errors.As(err, &of) || of.Pid != ended.Process.Pid {
		t.Errorf("%v", err)
	}
}

func TestProcessWithoutTheDriverIsRefused(t *testing.T) {
	testclass.Unit(t)
	parent, _ := startParent(t)
	s, err := Open(Options{Pids: []int{parent}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Libraries(); !errors.Is(err, process.ErrNoLibrary) {
		t.Errorf("%v", err)
	}
}

func TestPidSetIsEmptiedAtOnce(t *testing.T) {
	testclass.Unit(t)
	s := newPidSet()
	for _, pid := range []int{3, 1, 3} {
		s.add(pid)
	}
	<-s.news
	pids := s.takeAll()
	slices.Sort(pids)
	if !slices.Equal(pids, []int{1, 3}) || len(s.news) != 0 || len(s.takeAll()) != 0 {
		t.Errorf("%v", pids)
	}
}

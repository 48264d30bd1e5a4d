//go:build linux

package record

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

func TestCPUListsAreCounted(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-3,8,10-11": 7, "": 0, "x": 0, "1-y": 0} {
		if got := countList(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
}

func TestModulesOfTheProcessAreRecordedOnce(t *testing.T) {
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "1000", "--threads", "1", "--seed", "1", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Stacks = StacksOff
	s := start(t, opt)
	result := runWhile(t, s, func() {
		p.step()
		p.expect("done")
	})
	p.finish()
	found := make(map[string]int)
	for _, r := range factRows(t, result.Output, format.KindModule) {
		name := filepath.Base(r.Name)
		found[name]++
		if info, err := os.Stat(r.Name); err != nil || info.Size() != r.Bytes || r.Pid != int32(p.pid()) {
			t.Errorf("%+v: %v", r, err)
		}
		if strings.HasPrefix(name, "libcuda") && !strings.Contains(r.Message, `"build_id":"`) {
			t.Errorf("%s has no build id: %s", name, r.Message)
		}
	}
	for _, name := range []string{"storm", "libcuda.so.1", "libc.so.6"} {
		if found[name] != 1 {
			t.Errorf("%s is recorded %d times, modules: %v", name, found[name], found)
		}
	}
}

func TestThreadsThatRenameThemselvesAreNamedAgain(t *testing.T) {
	runtime.LockOSThread() // and it ends with the goroutine, as it has another name then
	path := filepath.Join(t.TempDir(), "r.parquet")
	writer, err := format.Create(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &scribe{writer: writer, accounts: &accounts{clock: newClock()}, threads: make(map[int32]*knownThread)}
	name := func(name string) {
		if err := os.WriteFile("/proc/thread-self/comm", []byte(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	name("first")
	s.noteThread(int32(os.Getpid()), int32(unix.Gettid()))
	s.renameThreads()
	name("second")
	s.renameThreads()
	s.renameThreads()
	if err := writer.Finish(format.Meta{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range factRows(t, path, format.KindThread) {
		names = append(names, r.Name)
	}
	if !slices.Equal(names, []string{"first", "second"}) {
		t.Errorf("names: %q", names)
	}
}

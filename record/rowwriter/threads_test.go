//go:build linux

package rowwriter

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
)

func TestThreadsThatRenameThemselvesAreNamedAgain(t *testing.T) {
	testclass.Unit(t)
	runtime.LockOSThread() // the renamed thread exits with the goroutine
	path := filepath.Join(t.TempDir(), "r.parquet")
	writer, err := format.Create(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &Writer{writer: writer, counters: &callCounters{clock: clock.New()}, threads: make(map[int32]*knownThread)}
	name := func(name string) {
		if err := os.WriteFile("/proc/thread-self/comm", []byte(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	name("first")
	s.addThread(int32(os.Getpid()), int32(unix.Gettid()))
	s.writeChangedThreadNames()
	name("second")
	s.writeChangedThreadNames()
	s.writeChangedThreadNames()
	if err := writer.Finish(format.Meta{}); err != nil {
		t.Fatal(err)
	}
	var names []string
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	err = rec.Rows(func(r *format.Row) error {
		names = append(names, r.Name)
		return nil
	}, format.ClassFact)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(names, []string{"first", "second"}) {
		t.Errorf("names: %q", names)
	}
}

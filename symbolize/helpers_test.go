package symbolize

import (
	"bytes"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/symbolize/elftest"
)

func open(t testing.TB, raw []byte) *Object {
	t.Helper()
	o, err := NewObject(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// compile compiles a file of testdata.
func compile(t testing.TB, source, output string, flags ...string) string {
	t.Helper()
	return elftest.Compile(t, filepath.Join("testdata", source), output, flags...)
}

// isFast reports whether f uses less CPU time than limit in its own thread. The limit is more than ten
// times the expected time: caches are cold, and other processes share them.
func isFast(limit time.Duration, f func()) bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := threadCPUNs()
	f()
	return threadCPUNs()-start < limit.Nanoseconds()
}

// threadCPUNs returns the CPU time of the calling thread in ns.
func threadCPUNs() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		panic(err) // cannot happen: Linux has this clock
	}
	return ts.Nano()
}

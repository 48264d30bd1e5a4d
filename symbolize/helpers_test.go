package symbolize

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

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

// isFast reports whether f takes less than limit in one of three tries. The limit is more than ten
// times the expected time, because other processes use the CPU too.
func isFast(limit time.Duration, f func()) bool {
	for range 3 {
		start := time.Now()
		f()
		if time.Since(start) < limit {
			return true
		}
	}
	return false
}

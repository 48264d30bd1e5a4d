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

// isFast reports whether f takes less than limit, which is more than ten times what it should take,
// in one of three tries: another process may use the CPU during one.
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

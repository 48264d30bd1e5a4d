// Package elftest creates ELF files for tests: with compilers and binutils, or byte by byte in
// memory, where a test needs a file that no compiler writes.
package elftest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// NeedTools skips the test unless all named programs are installed.
func NeedTools(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			testclass.Missing(t, name+" is not installed")
		}
	}
}

// Run runs a program and returns its standard output. The test fails if the program does.
func Run(t testing.TB, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	c := exec.Command(name, args...)
	c.Stderr = &stderr
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// Compile compiles a C or C++ file into a temporary folder and returns the path of the output. The
// optimization is -O1 unless flags override it. Compile skips the test if compilers or binutils are
// missing.
func Compile(t testing.TB, source, output string, flags ...string) string {
	t.Helper()
	compiler := "gcc"
	if strings.HasSuffix(source, ".cpp") {
		compiler = "g++"
	}
	NeedTools(t, compiler, "nm", "strip", "objcopy")
	path := filepath.Join(t.TempDir(), output)
	Run(t, compiler, append([]string{"-O1", "-o", path, source}, flags...)...)
	return path
}

// AllocatedBytes returns the number of bytes that f allocates on the heap.
func AllocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Package elftest creates ELF files for tests: with compilers and binutils, or byte by byte in
// memory, where a test needs a file that no compiler writes.
package elftest

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Skip skips a test because this machine lacks something. With GPUREC_MUST_RUN=1 the test fails
// instead.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("GPUREC_MUST_RUN") == "1" {
		t.Fatalf("must run, but: %s", reason)
	}
	t.Skip(reason)
}

// NeedTools skips the test unless all programs are installed.
func NeedTools(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			Skip(t, name+" is not installed")
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

// Compile compiles a C or C++ file into a temporary folder, with -O1 unless flags say otherwise,
// and returns the path of the program or library. It skips the test if there are no compilers or
// binutils.
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

// AllocatedBytes returns how many bytes f allocates.
func AllocatedBytes(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

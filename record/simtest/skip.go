//go:build linux

package simtest

import (
	"os"
	"testing"
)

// SkipOrFail skips a test. With GPUREC_MUST_RUN=1 the test fails instead.
func SkipOrFail(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("GPUREC_MUST_RUN") == "1" {
		t.Fatalf("must run, but %s", reason)
	}
	t.Skip(reason)
}

// Lab skips a test that runs in make lab only: its outcome depends on the load of the machine or on
// random seeds. make lab sets GPUREC_LAB=1.
func Lab(t testing.TB) {
	t.Helper()
	if os.Getenv("GPUREC_LAB") != "1" {
		t.Skip("runs in make lab only")
	}
}

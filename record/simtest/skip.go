//go:build linux

package simtest

import (
	"os"
	"testing"
)

// Skip skips a test, or fails it where GPUREC_MUST_RUN is 1.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("GPUREC_MUST_RUN") == "1" {
		t.Fatalf("must run, but %s", reason)
	}
	t.Skip(reason)
}

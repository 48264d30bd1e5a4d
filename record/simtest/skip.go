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

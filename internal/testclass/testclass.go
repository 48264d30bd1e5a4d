// Package testclass states the class of each test, and selects the tests of a run by class.
//
// A test begins with a call of Unit, Browser, Root or Lab. The environment variable GPUREC_TESTS selects
// classes, such as "unit,browser,gate". Without it all tests run but those of class lab.
// GPUREC_MUST_RUN=1 turns a skip for a missing program or privilege into a failure.
package testclass

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The values of GPUREC_TESTS. A test of class lab is selected by its target of make.
const (
	unit    = "unit"
	browser = "browser"
	root    = "root"
	gate    = "gate" // the tests of class root that .ci/run runs
)

// Property is a property of a test of class root.
type Property int

const (
	// Gate marks a test that .ci/run runs. It passes each time, also on a busy machine.
	Gate Property = iota
	// Timing marks a test whose case arises only with a certain schedule of the kernel. If the case did not
	// arise, .ci/run runs the test once more, alone. See DidNotArise.
	Timing
)

// Unit states that a test needs neither root nor a feature of the kernel, and has the same result each
// time.
func Unit(t testing.TB) {
	t.Helper()
	selectClass(t, unit)
}

// Browser states that a test needs programs that read gpurec's output, such as Chromium, DuckDB and
// trace_processor. scripts/viewers.sh installs them.
func Browser(t testing.TB) {
	t.Helper()
	selectClass(t, browser)
}

// Root states that a test uses real probes, or other features that need root. It is right on a busy
// machine, on one core, and a minute after a boot. go test does not reuse its result in a run with another
// value of GPUREC_RUN.
func Root(t testing.TB, properties ...Property) {
	t.Helper()
	_ = os.Getenv("GPUREC_RUN") // go test notes the variables that a test reads
	if slices.Contains(properties, Gate) {
		selectClass(t, root, gate)
	} else {
		selectClass(t, root)
	}
	if slices.Contains(properties, Timing) {
		t.Log(TimingText)
	}
}

// Lab states that a test measures, loads the machine, tries random seeds, or takes minutes. Only a target of
// make runs it: lab, or another one with its parameters.
func Lab(t testing.TB, target string) {
	t.Helper()
	if !isSelected(target) {
		t.Skipf("%smake %s runs it", NotSelectedText, target)
	}
}

// Missing skips a test because the machine lacks a program, a privilege or a feature. With
// GPUREC_MUST_RUN=1 the test fails instead.
func Missing(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("GPUREC_MUST_RUN") == "1" {
		t.Fatalf("must run, but %s", reason)
	}
	t.Skip(reason)
}

// DidNotArise fails a test with the property Timing because the schedule of the kernel did not produce
// its case. A value that misses its truth is no such failure.
func DidNotArise(t testing.TB, format string, args ...any) {
	t.Helper()
	if t.Failed() {
		t.FailNow()
	}
	t.Fatalf("%s%s", DidNotAriseText, fmt.Sprintf(format, args...))
}

// Texts by which scripts/gate recognizes tests in the output of go test.
const (
	// NotSelectedText begins the message of a skipped test whose class is not selected.
	NotSelectedText = "not selected: "
	// TimingText is the message of a test with the property Timing.
	TimingText = "a test of timing"
	// DidNotAriseText begins the failure of DidNotArise.
	DidNotAriseText = "the case did not arise: "
)

// selectClass skips a test if none of its classes is selected.
func selectClass(t testing.TB, classes ...string) {
	t.Helper()
	if !slices.ContainsFunc(classes, isSelected) {
		t.Skipf("%sclass %s is not in GPUREC_TESTS", NotSelectedText, classes[0])
	}
}

// isSelected reports whether GPUREC_TESTS has a value.
func isSelected(value string) bool {
	selection := os.Getenv("GPUREC_TESTS")
	if selection == "" {
		selection = unit + "," + browser + "," + root
	}
	return slices.Contains(strings.Split(selection, ","), value)
}

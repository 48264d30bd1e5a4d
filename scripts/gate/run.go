package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/internal/testclass"
)

// maxReruns is how many failed tests may run once more. More failures have a common cause.
const maxReruns = 3

// testName names a test or a subtest.
type testName struct{ Package, Name string }

func (n testName) String() string { return n.Package + " " + n.Name }

func (n testName) isTopLevel() bool { return !strings.Contains(n.Name, "/") }

// testResult is the result of a test or a subtest.
type testResult struct {
	outcome string // pass, fail or skip; "" if the process ended before the test did
	output  strings.Builder
}

// testRun is the output of go test -json.
type testRun struct {
	tests map[testName]*testResult
	// failedPackages counts failed tests by package; 0: it failed in another way.
	failedPackages map[string]int
}

// event is a line of go test -json, see go doc test2json.
type event struct {
	Action, Package, Test, Output string
}

// readFile reads the output of go test -json from a file.
func readFile(path string) (*testRun, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// read reads the output of go test -json.
func read(in io.Reader) (*testRun, error) {
	r := &testRun{tests: make(map[testName]*testResult), failedPackages: make(map[string]int)}
	for lines := json.NewDecoder(in); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			return r, nil
		} else if err != nil {
			return nil, err
		}
		r.add(&e)
	}
}

// add adds an event.
func (r *testRun) add(e *event) {
	if e.Test == "" {
		if e.Action == "fail" && e.Package != "" {
			r.failedPackages[e.Package] += 0
		}
		return
	}
	name := testName{e.Package, e.Test}
	test := r.tests[name]
	if test == nil {
		test = new(testResult)
		r.tests[name] = test
	}
	switch e.Action {
	case "output":
		test.output.WriteString(e.Output)
	case "pass", "fail", "skip":
		test.outcome = e.Action
		if e.Action == "fail" {
			r.failedPackages[e.Package]++
		}
	}
}

// isFailed reports whether a test failed, or did not end.
func (r *testRun) isFailed(name testName) bool {
	test := r.tests[name]
	return test != nil && test.outcome != "pass" && test.outcome != "skip"
}

// reruns returns the failed tests that may run once more. It returns an error if another failure is
// final.
func (r *testRun) reruns() ([]testName, error) {
	for name, n := range r.failedPackages {
		if n == 0 {
			return nil, fmt.Errorf("%s failed outside of its tests", name)
		}
	}
	var tests []testName
	for name, test := range r.tests {
		if !r.isFailed(name) {
			continue
		}
		if !r.hasFailedSubtest(name) && !strings.Contains(test.output.String(), testclass.DidNotAriseText) {
			return nil, fmt.Errorf("%s failed", name)
		}
		if name.isTopLevel() {
			if !strings.Contains(test.output.String(), testclass.TimingText) {
				return nil, fmt.Errorf("%s has no property Timing, and failed", name)
			}
			tests = append(tests, name)
		}
	}
	if len(tests) > maxReruns {
		return nil, fmt.Errorf("%d tests failed", len(tests))
	}
	slices.SortFunc(tests, func(a, b testName) int {
		return strings.Compare(a.String(), b.String())
	})
	return tests, nil
}

// hasFailedSubtest reports whether a subtest of a test failed.
func (r *testRun) hasFailedSubtest(parent testName) bool {
	for name := range r.tests {
		if name.Package == parent.Package && strings.HasPrefix(name.Name, parent.Name+"/") && r.isFailed(name) {
			return true
		}
	}
	return false
}

// testCounts are numbers of tests without subtests.
type testCounts struct {
	ran, unstable, failed, notSelected int
	skips                              []string // names of the skipped tests, with reasons
}

// count counts the tests of a run.
func (r *testRun) count() testCounts {
	var c testCounts
	for name, test := range r.tests {
		switch {
		case !name.isTopLevel():
		case test.outcome == "skip" && strings.Contains(test.output.String(), testclass.NotSelectedText):
			c.notSelected++
		case test.outcome == "skip":
			c.skips = append(c.skips, name.Name+": "+skipReason(test.output.String()))
		default:
			c.ran++
			if r.isFailed(name) {
				c.failed++
			}
		}
	}
	slices.Sort(c.skips)
	return c
}

// skipReason returns the message of a skipped test in its output.
func skipReason(output string) string {
	for line := range strings.Lines(output) {
		if file, text, ok := strings.Cut(line, ".go:"); ok && strings.HasPrefix(file, "    ") {
			_, text, _ = strings.Cut(text, ": ")
			return strings.TrimSpace(text)
		}
	}
	return "no reason"
}

// Command gate reads the output of go test -json, and decides what scripts/check.sh does with it.
//
//	gate summary FILE…   prints how many tests ran, were skipped and were unstable
//	gate reruns FILE     prints PACKAGE and TEST of the failed tests that may run once more
//	gate rates FILE…     prints in how many of the runs each test passed
//
// The exit status is 1 if a failure is final (reruns), or if a test failed (rates).
package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "gate:", err)
		os.Exit(1)
	}
}

// run executes a command line.
func run(out io.Writer, args []string) error {
	if len(args) < 2 {
		return errUsage
	}
	runs := make([]*testRun, len(args)-1)
	for i, path := range args[1:] {
		var err error
		if runs[i], err = readFile(path); err != nil {
			return err
		}
	}
	switch args[0] {
	case "summary":
		printSummary(out, runs)
		return nil
	case "reruns":
		return printReruns(out, runs[0])
	case "rates":
		return printRates(out, runs)
	}
	return errUsage
}

var errUsage = errors.New("usage: gate summary FILE…, gate reruns FILE, or gate rates FILE…")

// printReruns prints the failed tests of a run that may run once more.
func printReruns(out io.Writer, r *testRun) error {
	reruns, err := r.reruns()
	for _, test := range reruns {
		fmt.Fprintln(out, test)
	}
	return err
}

// printSummary prints the numbers of tests of a run and of the runs that repeated some of its tests.
// A test that failed and then passed is unstable.
func printSummary(out io.Writer, runs []*testRun) {
	counts := runs[0].count()
	for _, again := range runs[1:] {
		for test, result := range again.tests {
			if result.outcome == "pass" && runs[0].isFailed(test) && test.isTopLevel() {
				fmt.Fprintln(out, "unstable:", test.Name)
				counts.failed--
				counts.unstable++
			}
		}
	}
	for _, text := range counts.skips {
		fmt.Fprintln(out, "skipped:", text)
	}
	fmt.Fprintf(out, "tests: %d ran, %d skipped, %d unstable, %d failed; %d belong to other targets\n",
		counts.ran, len(counts.skips), counts.unstable, counts.failed, counts.notSelected)
}

// printRates prints in how many runs each test passed, least first. It returns an error if a test failed,
// or if a package failed outside of its tests.
func printRates(out io.Writer, runs []*testRun) error {
	passed, ran := make(map[testName]int), make(map[testName]int)
	var failed []error
	for i, r := range runs {
		for name, n := range r.failedPackages {
			if n == 0 {
				failed = append(failed, fmt.Errorf("run %d: %s failed outside of its tests", i+1, name))
			}
		}
		for name, result := range r.tests {
			if name.isTopLevel() && result.outcome != "skip" {
				ran[name]++
				if result.outcome == "pass" {
					passed[name]++
				}
			}
		}
	}
	names := slices.SortedFunc(maps.Keys(ran), func(a, b testName) int {
		return cmp.Or(cmp.Compare(passed[a]*ran[b], passed[b]*ran[a]), cmp.Compare(a.String(), b.String()))
	})
	for _, name := range names {
		fmt.Fprintf(out, "%3d of %3d  %s\n", passed[name], ran[name], name)
		if passed[name] < ran[name] {
			failed = append(failed, fmt.Errorf("%s failed", name))
		}
	}
	return errors.Join(failed...)
}

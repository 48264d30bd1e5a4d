package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// output returns the output of go test -json for tests of one package. Each line is "TEST ACTION" or
// "TEST output TEXT". The test "-" is the package itself.
func output(t *testing.T, lines ...string) *testRun {
	t.Helper()
	var b strings.Builder
	for _, line := range lines {
		words := strings.SplitN(line, " ", 3)
		e := event{Package: "example/a", Test: words[0], Action: words[1]}
		if e.Test == "-" {
			e.Test = ""
		}
		if len(words) == 3 {
			e.Output = words[2] + "\n"
		}
		if err := json.NewEncoder(&b).Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	r, err := read(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	timing    = " output     a_test.go:9: " + testclass.TimingText
	notArisen = " output     a_test.go:9: " + testclass.DidNotAriseText + "no thread was preempted"
)

func TestReruns(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		lines []string
		want  string // output, or the error
	}{
		"all pass":        {[]string{"TestA pass", "- pass"}, ""},
		"did not arise":   {[]string{"TestA" + timing, "TestA" + notArisen, "TestA fail", "- fail"}, "example/a TestA\n"},
		"wrong value":     {[]string{"TestA" + timing, "TestA output wrong", "TestA fail", "- fail"}, "example/a TestA failed"},
		"no timing":       {[]string{"TestA" + notArisen, "TestA fail", "- fail"}, "example/a TestA has no property Timing, and failed"},
		"one of two":      {[]string{"TestA" + timing, "TestA" + notArisen, "TestA fail", "TestB fail", "- fail"}, "example/a TestB failed"},
		"subtest":         {[]string{"TestA" + timing, "TestA/x" + notArisen, "TestA/x fail", "TestA fail", "- fail"}, "example/a TestA\n"},
		"wrong subtest":   {[]string{"TestA" + timing, "TestA" + notArisen, "TestA/x fail", "TestA fail", "- fail"}, "example/a TestA/x failed"},
		"died":            {[]string{"TestA" + timing, "- fail"}, "example/a failed outside of its tests"},
		"does not build":  {[]string{"- fail"}, "example/a failed outside of its tests"},
		"too many at all": {manyFailures(), "4 tests failed"},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			if err := printReruns(&b, output(t, c.lines...)); err != nil {
				b.Reset()
				b.WriteString(err.Error())
			}
			if b.String() != c.want {
				t.Errorf("got %q, want %q", b.String(), c.want)
			}
		})
	}
}

// manyFailures returns the output of four tests whose case did not arise.
func manyFailures() []string {
	var lines []string
	for _, test := range []string{"TestA", "TestB", "TestC", "TestD"} {
		lines = append(lines, test+timing, test+notArisen, test+" fail")
	}
	return append(lines, "- fail")
}

func TestSummary(t *testing.T) {
	testclass.Unit(t)
	first := output(t,
		"TestA/x pass", "TestA pass",
		"TestB"+timing, "TestB"+notArisen, "TestB fail",
		"TestC output     a_test.go:9: "+testclass.NotSelectedText+"make lab runs it", "TestC skip",
		"TestD output     a_test.go:9: gdb is not installed", "TestD skip",
		"- fail",
	)
	var b strings.Builder
	printSummary(&b, []*testRun{first, output(t, "TestB pass", "- pass")})
	want := "unstable: TestB\nskipped: TestD: gdb is not installed\n" +
		"tests: 2 ran, 1 skipped, 1 unstable, 0 failed; 1 belong to other targets\n"
	if b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestRates(t *testing.T) {
	testclass.Unit(t)
	runs := []*testRun{
		output(t, "TestA pass", "TestB pass", "TestC skip", "- pass"),
		output(t, "TestA pass", "TestB fail", "TestC skip", "- fail"),
		output(t, "- fail"),
	}
	var b strings.Builder
	err := printRates(&b, runs)
	if want := "  1 of   2  example/a TestB\n  2 of   2  example/a TestA\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
	if want := "run 3: example/a failed outside of its tests\nexample/a TestB failed"; err == nil ||
		err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

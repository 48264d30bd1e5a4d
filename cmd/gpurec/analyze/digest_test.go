package analyze

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rulecases"
	"github.com/gpurec/gpurec/internal/testclass"
)

// digestNext returns the next commands of a digest.
func digestNext(t *testing.T, args ...string) (commands []string) {
	t.Helper()
	out, stderr, code := runHere(t, append([]string{"analyze", "digest", "--format", "json"}, args...)...)
	if code != 0 {
		t.Fatalf("%v: %d, %s", args, code, stderr)
	}
	var d struct{ Findings []struct{ Next string } }
	if err := json.Unmarshal([]byte(out), &d); err != nil {
		t.Fatal(err, out)
	}
	for _, f := range d.Findings {
		commands = append(commands, f.Next)
	}
	return commands
}

// TestDigestCommands checks that every command that a digest recommends works on the recording, also
// with the filter of the digest.
func TestDigestCommands(t *testing.T) {
	testclass.Unit(t)
	recording := rulecases.TroubledRecording(t)
	recording.Path = filepath.Join(t.TempDir(), "a b.parquet")
	recording.WriteAndOpen()
	ran := 0
	for _, flags := range [][]string{
		nil,
		{"--from", "1s", "--to", "50s"},
		{"--pid", "42", "--device", "0,1"},
	} {
		for _, command := range digestNext(t, append(flags, recording.Path)...) {
			words, ok := strings.CutPrefix(command, "gpurec ")
			words, isQuoted := strings.CutSuffix(words, " '"+recording.Path+"'")
			if !ok || !isQuoted {
				t.Fatalf("command %q", command)
			}
			if len(flags) > 0 && !strings.Contains(words, strings.Join(flags[:2], " ")) {
				t.Errorf("%q lacks %v", command, flags)
			}
			args := append(strings.Fields(words), recording.Path)
			if out, stderr, code := runHere(t, args...); code != 0 || out == "" {
				t.Errorf("%q: %d, %s", command, code, stderr)
			}
			ran++
		}
	}
	if ran < 12 {
		t.Errorf("only %d commands", ran)
	}
}

// TestDigestArguments checks that the flags of digest are checked, and several recordings are refused
// with a command that works.
func TestDigestArguments(t *testing.T) {
	testclass.Unit(t)
	dir := t.TempDir()
	one := writeRank(t, dir, 0, "llama", 100)
	writeRank(t, dir, 1, "llama", 100)
	for _, c := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"--max-chars", "999", one}, 2, "--max-chars must be at least 1000"},
		{[]string{"--format", "html", one}, 2, `unknown format "html"; the formats are md, json`},
		{[]string{dir}, 2, "digest reads one recording; ranks, hang and the summary compare several"},
		{[]string{filepath.Join(dir, "absent.parquet")}, 1, "does not exist"},
		{[]string{"--fail-on", "no_such>0", one}, 2, "this report has no number"},
		{[]string{"--fail-on", "problems==0", one}, 3, "failed on problems==0"},
		{[]string{"--fail-on", "problems>0 || lost_events>0", one}, 0, ""},
		{[]string{"--pid", "7", one}, 0, "no row matches --pid 7"},
	} {
		_, stderr, code := runHere(t, append([]string{"analyze", "digest"}, c.args...)...)
		if code != c.code || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%v: %d, %s", c.args, code, stderr)
		}
	}
	out, _, code := runHere(t, "analyze", "digest", "--max-chars", "1000", one)
	if n := utf8.RuneCountInString(out); code != 0 || n > 1000 || !strings.HasPrefix(out, "# Digest of `") {
		t.Errorf("%d, %d characters: %s", code, n, out)
	}
	if out, _, code := runHere(
		t,
		"analyze",
		"digest",
		"--explain",
	); code != 0 ||
		!strings.Contains(out, "recorded_share_pct") {
		t.Errorf("%d, %s", code, out)
	}
}

// TestDigestOfRanks checks that a digest names the ranks of a job.
func TestDigestOfRanks(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.SteadyRecording(t)
	rulecases.AllCases()["rank-missing"].Fires(recording)
	recording.WriteAndOpen()
	out, stderr, code := runHere(t, "analyze", "digest", recording.Path)
	for _, want := range []string{"- recorded ranks: 4\n", "- ranks of job: 4\n", "- job: `llama`\n", "has waited for rank 2"} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("%d, %s: no %q in %s", code, stderr, want, out)
		}
	}
}

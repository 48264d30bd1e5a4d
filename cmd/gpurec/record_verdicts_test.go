//go:build linux

package main

import (
	"io"
	"os"
	"testing"

	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestPrintVerdict(t *testing.T) {
	testclass.Unit(t)
	for want, v := range map[string]live.Verdict{
		"leak so far: grows, at step (train.py:3)": {
			Kind: "leak", SoFar: true, What: "grows", Where: "step (train.py:3)",
		},
		"leak so far: grows": {Kind: "leak", SoFar: true, What: "grows", Where: "(no stack)"},
		"hang: waits, at wait, in process stuck (4242)": {
			Kind: "hang", What: "waits, at wait", Where: "wait in process stuck (4242)",
		},
		"hang: process 7 x hangs, at wait": {
			Kind: "hang", What: "process 7 x hangs, at wait", Where: "wait in process 7 x",
		},
		"error: 3 frees failed": {Kind: "error", What: "3 frees failed"},
	} {
		if got := captureStderr(t, func() { printVerdict(v) }); got != "gpurec: verdict: "+want+"\n" {
			t.Errorf("got  %swant gpurec: verdict: %s", got, want)
		}
	}
}

func TestFirstLine(t *testing.T) {
	testclass.Unit(t)
	for messages, want := range map[string]string{
		"": "", "gpurec: error: no file\ngpurec: hint: x\n": ": no file", "panic: x\n\ngoroutine 1": ": panic: x",
	} {
		if got := firstLine(messages); got != want {
			t.Errorf("%q: %q, want %q", messages, got, want)
		}
	}
}

// captureStderr returns what f writes to standard error. It is not for parallel tests.
func captureStderr(t *testing.T, f func()) string {
	t.Helper()
	reader, writer, err := os.Pipe()
	must(t, err)
	saved := os.Stderr
	os.Stderr = writer
	f()
	os.Stderr = saved
	must(t, writer.Close())
	text, err := io.ReadAll(reader)
	must(t, err)
	return string(text)
}

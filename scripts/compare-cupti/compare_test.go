package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestSameTimes compares a simulated recording with a reference that has the true times. All operations must
// be found, and no interval may miss its time.
func TestSameTimes(t *testing.T) {
	testclass.Unit(t)
	g := gpuprogram.Run(4, gpuprogram.Plan{
		Operations: 3000,
		Processes:  1,
		Threads:    2,
		OneThread:  true,
		Streams:    2,
		Kernels:    4,
		MeanNs:     20_000,
		PaceNs:     10_000,
		Idle:       0.05,
		Waits:      0.05,
		Full:       true,
	})
	path := filepath.Join(t.TempDir(), "run.ref")
	if err := os.WriteFile(path, []byte(referenceOf(g)), 0o600); err != nil {
		t.Fatal(err)
	}
	reference, err := readReference(path)
	if err != nil {
		t.Fatal(err)
	}
	var operations []activity.Operation
	result, err := activity.Compute(g.Replay, g.Channels, activity.Options{
		EndNs: g.EndNs, OnOperation: func(w *activity.Operation) { operations = append(operations, *w) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for label := range 4 {
		result.Labels = append(result.Labels, activity.Label{Kernel: kernelName(label), Grid: [3]int32{8, 1, 1}})
	}
	var out strings.Builder
	compareDurations(&out, result, reference)
	compareTimes(&out, result, operations, reference)
	if strings.Count(out.String(), "matched with stream") < 2 || !strings.Contains(out.String(), "measured") {
		t.Error("no operations were matched")
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if strings.HasPrefix(line, "  measured") && strings.Count(line, "100.00%") != 3 {
			t.Error("wrong times: ", line)
		}
	}
	t.Log(out.String())
}

func kernelName(label int) string { return fmt.Sprintf("kernel%d", label) }

// referenceOf returns the reference of a program.
func referenceOf(g *gpuprogram.Program) string {
	var text strings.Builder
	from, to := g.Channels[0].FromNs, g.EndNs
	fmt.Fprintf(&text, "t %d %d %d\n", from, from, from)
	for i := range 4 {
		fmt.Fprintf(&text, "n %d %s\n", i, kernelName(i))
	}
	for i := range g.Calls {
		c := &g.Calls[i]
		if c.ID < 0 {
			continue
		}
		w := g.Truth[c.ID]
		switch c.Op {
		case activity.OpKernel:
			fmt.Fprintf(&text, "k %d %d 0 %d %d 8 1 1 0\n", w.StartNs, w.EndNs, c.Stream, c.Label)
		case activity.OpGraph:
			fmt.Fprintf(&text, "g %d %d 0 %d 1 1\n", w.StartNs, w.EndNs, c.Stream)
		case activity.OpFill:
			fmt.Fprintf(&text, "s %d %d 0 %d 0\n", w.StartNs, w.EndNs, c.Stream)
		case activity.OpCopyToDevice, activity.OpCopyToHost, activity.OpCopyOnDevice:
			fmt.Fprintf(&text, "c %d %d 0 %d 1 0\n", w.StartNs, w.EndNs, c.Stream)
		}
	}
	fmt.Fprintf(&text, "t %d %d %d\nd 0\n", to, to, to)
	return text.String()
}

// TestWrongReferences requires clear errors for files that are no references.
func TestWrongReferences(t *testing.T) {
	testclass.Unit(t)
	for text, want := range map[string]string{
		"k 1 2\n":       "line 1",
		"t 5 9000000 6": "the clock of CUPTI is off",
		"n x name\n":    "line 1",
	} {
		path := filepath.Join(t.TempDir(), "run.ref")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readReference(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

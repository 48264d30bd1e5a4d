// Command compare-cupti compares GPU times of a recording with those of CUPTI in the same process.
//
//	go run ./scripts/compare-cupti RECORDING REFERENCE
//
// RECORDING was made with --gpu-time. REFERENCE is written by scripts/cupti_reference.cpp. If both have
// operations at the same time, the ends of these operations are compared one by one. Durations of kernels are
// compared by their means, so the two may also follow each other in a program with equal steps. Idle
// intervals of 50 us or more are compared by their share, number and lengths, and one by one if both saw
// the same time.
package main

import (
	"bufio"
	"fmt"
	"os"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "compare-cupti: give a recording and a reference, for example: "+
			"compare-cupti run.parquet run.ref")
		os.Exit(2)
	}
	if err := compare(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "compare-cupti:", err)
		os.Exit(1)
	}
}

// compare prints the comparison of a recording with a reference.
func compare(recordingPath, referencePath string) error {
	reference, err := readReference(referencePath)
	if err != nil {
		return err
	}
	recording, err := format.Open(recordingPath)
	if err != nil {
		return err
	}
	defer recording.Close()
	t, err := timeline.Open(recording)
	if err != nil {
		return err
	}
	result, err := activity.Of(t, t.RecordingWindow())
	if err != nil {
		return err
	}
	var operations []activity.Operation
	if err := result.EachOperation(func(w *activity.Operation) { operations = append(operations, *w) }); err != nil {
		return err
	}
	out := bufio.NewWriter(os.Stdout)
	compareDurations(out, result.Result, reference)
	compareTimes(out, result.Result, operations, reference)
	if err := compareIdle(out, t, reference); err != nil {
		return err
	}
	return out.Flush()
}

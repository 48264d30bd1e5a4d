//go:build linux

package simtest

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"testing"
)

// JobFacts describe a random program of simcuda's jobs.
type JobFacts struct {
	Scenario     string `json:"scenario"`
	Seed         int64  `json:"seed"`
	MainStream   int64  `json:"main_stream"`
	SideStream   int64  `json:"side_stream"`
	LateFunction string `json:"late_function"`
	SlowKernel   string `json:"slow_kernel"`
	SideKernel   string `json:"side_kernel"`
	CopyBytes    int64  `json:"copy_bytes"`
	CopiesOnMain bool   `json:"copies_on_main"`
}

// JobEvent is a step of a job, or something in a step that a report must find. Times are
// CLOCK_MONOTONIC in ns.
type JobEvent struct {
	// Event is step, delay, copy, stream, slow or stuck.
	Event          string `json:"event"`
	Step           int    `json:"step"`
	StartNs, EndNs int64
	// Function and Line are the place of the call. For a delay it is the call after it; FromFunction and
	// FromLine are the place of the call before it.
	Function     string `json:"function"`
	Line         int    `json:"line"`
	FromFunction string `json:"from_function"`
	FromLine     int    `json:"from_line"`
	Kernel       string `json:"kernel"`
	Grid         int32  `json:"grid"`
	Launches     int64  `json:"launches"` // of the step so far
	Outlier      string `json:"outlier"`  // of a step: "", host, kernel or launches
	Bound        string `json:"bound"`    // of a step: host or gpu
}

// JobTruth is the truth that jobs writes.
type JobTruth struct {
	JobFacts
	Events []JobEvent // in order of time; a step comes after its events
}

// EventsOf returns the events of a kind.
func (j *JobTruth) EventsOf(kind string) (list []JobEvent) {
	for _, e := range j.Events {
		if e.Event == kind {
			list = append(list, e)
		}
	}
	return list
}

// ReadJobTruth reads the file of jobs --truth.
func ReadJobTruth(t testing.TB, path string) *JobTruth {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines, truth := json.NewDecoder(file), new(JobTruth)
	if err := lines.Decode(&truth.JobFacts); err != nil {
		t.Fatal(err)
	}
	for {
		var line struct {
			JobEvent
			StartNs int64 `json:"start_ns"`
			EndNs   int64 `json:"end_ns"`
		}
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return truth
		} else if err != nil {
			t.Fatal(err)
		}
		line.JobEvent.StartNs, line.JobEvent.EndNs = line.StartNs, line.EndNs
		truth.Events = append(truth.Events, line.JobEvent)
	}
}

package agent

import (
	"context"
	"net/http"
)

// MetricsVersion is the version of Metrics. It changes when a field gets another meaning or goes away.
const MetricsVersion = 1

// Metrics has the numbers of an agent. Counters begin at 0 with the agent, and only increase.
type Metrics struct {
	Version int `json:"version"`
	// StartNs is when the agent began to count, Unix ns.
	StartNs int64 `json:"start_ns"`
	// Calls are the recorded calls. LostCalls are those that the recorder saw and lost, by class.
	Calls     int64            `json:"calls"`
	LostCalls map[string]int64 `json:"lost_calls"`
	RingBytes int64            `json:"ring_bytes"`
	// OverheadPercent is the latest measured cost of the probes for the busiest thread, in percent of its time;
	// -1: not measured.
	OverheadPercent float64         `json:"overhead_percent"`
	GPUs            []GPUMetrics    `json:"gpus"`
	Processes       []ProcessTotals `json:"processes"`
	Triggers        []TriggerCount  `json:"triggers"`
	// Captures are the sealed captures on disk.
	Captures     int   `json:"captures"`
	CaptureBytes int64 `json:"capture_bytes"`
	Sealing      int   `json:"sealing"`
	SealFailed   int   `json:"seal_failed"`
}

// GPUMetrics has the latest samples of a GPU.
type GPUMetrics struct {
	Index int32  `json:"index"` // of NVML
	UUID  string `json:"uuid"`
	Name  string `json:"name"`
	// Samples are the latest values by name; format/FORMAT.md has the names with their units.
	Samples map[string]float64 `json:"samples"`
	// Xids counts errors by code.
	Xids map[int64]int64 `json:"xids,omitempty"`
}

// ProcessTotals has the totals of a running process, or of all ended processes with the same identity.
type ProcessTotals struct {
	Pid int32 `json:"pid,omitempty"` // 0: ended processes
	ProcessIdentity
	Counters
	// UsedBytes is the memory of a running process by NVML index of the GPU, as NVML reports it.
	UsedBytes map[int32]int64 `json:"used_bytes,omitempty"`
}

// ProcessIdentity says what a process is. Values are "" if they are unknown.
type ProcessIdentity struct {
	Name      string `json:"name"`
	Job       string `json:"job,omitempty"`
	Attempt   string `json:"attempt,omitempty"`
	Rank      string `json:"rank,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	// GPUs are the NVML indexes of the GPUs that the process used, as "0" or "0,1".
	GPUs string `json:"gpus,omitempty"`
}

// Counters count recorded calls. Launches that --max-overhead left out are missing.
type Counters struct {
	Calls         int64 `json:"calls"`
	Launches      int64 `json:"launches"` // of kernels
	GraphLaunches int64 `json:"graph_launches"`
	Syncs         int64 `json:"syncs"`
	SyncNs        int64 `json:"sync_ns"` // time in calls that wait for the GPU, summed over threads
	// Copies are keyed by format.Row.CopyKind, Memory by format.Row.MemoryKind, Errors by CUDA result.
	Copies map[string]CopyTotals   `json:"copies,omitempty"`
	Memory map[string]MemoryTotals `json:"memory,omitempty"`
	Errors map[int32]int64         `json:"errors,omitempty"`
}

// CopyTotals counts successful copies.
type CopyTotals struct {
	Calls int64 `json:"calls"`
	Bytes int64 `json:"bytes"`
}

// MemoryTotals counts the bytes of successful allocations and of their frees. Frees of memory from before the agent
// are not counted. The difference is the live memory.
type MemoryTotals struct {
	AllocatedBytes int64 `json:"allocated_bytes"`
	FreedBytes     int64 `json:"freed_bytes"`
}

// TriggerCount counts events of a kind with an outcome.
type TriggerCount struct {
	Kind    string `json:"kind"`
	Outcome string `json:"outcome"` // format.TriggerCaptured and so on
	Count   int64  `json:"count"`
	// Newest is the ID of the newest capture of the kind, "" if there is none.
	Newest string `json:"newest,omitempty"`
}

// ReadMetrics asks an agent for its numbers.
func ReadMetrics(ctx context.Context, socket string) (m Metrics, err error) {
	err = call(ctx, socket, http.MethodGet, pathMetrics, nil, &m)
	return m, err
}

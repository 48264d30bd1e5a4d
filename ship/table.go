package ship

import "github.com/prometheus/client_golang/prometheus"

// Metric describes a metric. Table has all of them.
type Metric struct {
	Name   string // of Prometheus
	OTel   string // name in the semantic conventions of OpenTelemetry, or ours
	Kind   prometheus.ValueType
	Unit   string // as OpenTelemetry writes it; "1": a number
	Labels []string
	Help   string

	// Sample and Factor are set for samples of a GPU: the name of the sample, and the factor to Unit.
	Sample string
	Factor float64
	// Fixed are the values of all labels but those of the GPU.
	Fixed []string
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// processLabels are the labels of metrics of a process. None of them is a pid: a restarted job continues its series.
var processLabels = []string{"process", "job_id", "attempt", "rank", "namespace", "pod", "gpu"}

// gpuLabels are the labels of metrics of a GPU.
var gpuLabels = []string{"gpu", "uuid", "model"}

// with returns labels with further ones.
func with(labels []string, more ...string) []string {
	return append(labels[:len(labels):len(labels)], more...)
}

// Metrics of the agent.
var (
	agentUp = Metric{
		Name: "gpurec_agent_up", OTel: "gpurec.agent.up", Kind: gauge, Unit: "1",
		Help: "1 if the agent answers, 0 if it does not",
	}
	agentStart = Metric{
		Name: "gpurec_agent_start_time_seconds", OTel: "gpurec.agent.start_time", Kind: gauge, Unit: "s",
		Help: "When the agent began to record, Unix time",
	}
	callsTotal = Metric{
		Name: "gpurec_calls_total", OTel: "gpurec.calls", Kind: counter, Unit: "1",
		Help: "Recorded calls of the CUDA driver",
	}
	lostTotal = Metric{
		Name: "gpurec_lost_calls_total", OTel: "gpurec.lost_calls", Kind: counter, Unit: "1",
		Labels: []string{"class"}, Help: "Calls that the recorder saw and lost",
	}
	overheadRatio = Metric{
		Name: "gpurec_overhead_ratio", OTel: "gpurec.overhead", Kind: gauge, Unit: "1",
		Help: "Latest measured cost of probes, as a share of the time of the busiest thread",
	}
	ringBytes = Metric{
		Name: "gpurec_ring_bytes", OTel: "gpurec.ring.size", Kind: gauge, Unit: "By",
		Help: "Size of the ring on disk",
	}
	captureCount = Metric{
		Name: "gpurec_captures", OTel: "gpurec.captures", Kind: gauge, Unit: "1",
		Help: "Sealed captures on disk",
	}
	captureBytes = Metric{
		Name: "gpurec_captures_bytes", OTel: "gpurec.captures.size", Kind: gauge, Unit: "By",
		Help: "Size of the sealed captures on disk",
	}
	sealing = Metric{
		Name: "gpurec_captures_sealing", OTel: "gpurec.captures.sealing", Kind: gauge, Unit: "1",
		Help: "Captures that wait for their seal",
	}
	sealFailures = Metric{
		Name: "gpurec_seal_failures_total", OTel: "gpurec.seal_failures", Kind: counter, Unit: "1",
		Help: "Captures that could not be sealed",
	}
	triggersTotal = Metric{
		Name: "gpurec_triggers_total", OTel: "gpurec.triggers", Kind: counter, Unit: "1",
		Labels: []string{"trigger", "outcome"},
		Help:   "Trigger events by kind and outcome; the exemplar of the outcome captured names the newest recording",
	}
)

// Metrics of processes.
var (
	processes = Metric{
		Name: "gpurec_processes", OTel: "gpurec.processes", Kind: gauge, Unit: "1",
		Labels: processLabels, Help: "Recorded processes that run",
	}
	processCalls = Metric{
		Name: "gpurec_process_calls_total", OTel: "gpurec.process.calls", Kind: counter, Unit: "1",
		Labels: processLabels, Help: "Recorded calls of the process",
	}
	launches = Metric{
		Name:   "gpu_cuda_kernel_launch_calls_total",
		OTel:   "gpu.cuda.kernel.launch.calls",
		Kind:   counter,
		Unit:   "1",
		Labels: processLabels,
		Help:   "Recorded launches of kernels; those that a limit of overhead left out are missing",
	}
	graphLaunches = Metric{
		Name: "gpu_cuda_graph_launch_calls_total", OTel: "gpu.cuda.graph.launch.calls", Kind: counter,
		Unit: "1", Labels: processLabels, Help: "Recorded launches of graphs",
	}
	allocations = Metric{
		Name:   "gpu_cuda_memory_allocations_bytes_total",
		OTel:   "gpu.cuda.memory.allocations",
		Kind:   counter,
		Unit:   "By",
		Labels: with(processLabels, "kind"),
		Help:   "Bytes of successful allocations of driver memory",
	}
	frees = Metric{
		Name: "gpu_cuda_memory_frees_bytes_total", OTel: "gpu.cuda.memory.frees", Kind: counter, Unit: "By",
		Labels: with(processLabels, "kind"), Help: "Bytes of freed driver memory, without memory from before the agent",
	}
	live = Metric{
		Name: "gpurec_memory_live_bytes", OTel: "gpurec.memory.live", Kind: gauge, Unit: "By",
		Labels: with(processLabels, "kind"), Help: "Live driver memory that was allocated since the agent began",
	}
	copyCalls = Metric{
		Name: "gpu_cuda_memory_copy_calls_total", OTel: "gpu.cuda.memory.copy.calls", Kind: counter,
		Unit: "1", Labels: with(processLabels, "direction"), Help: "Recorded copies by direction",
	}
	copyBytes = Metric{
		Name: "gpu_cuda_memory_copies_bytes_total", OTel: "gpu.cuda.memory.copies", Kind: counter,
		Unit: "By", Labels: with(processLabels, "direction"), Help: "Bytes of recorded copies by direction",
	}
	syncCalls = Metric{
		Name: "gpurec_sync_calls_total", OTel: "gpurec.sync.calls", Kind: counter, Unit: "1",
		Labels: processLabels, Help: "Calls that wait for the GPU",
	}
	syncSeconds = Metric{
		Name: "gpurec_sync_seconds_total", OTel: "gpurec.sync.duration", Kind: counter, Unit: "s",
		Labels: processLabels, Help: "Time in calls that wait for the GPU, summed over threads",
	}
	errorsTotal = Metric{
		Name: "gpurec_errors_total", OTel: "gpurec.errors", Kind: counter, Unit: "1",
		Labels: with(processLabels, "error"), Help: "Failed calls by CUDA result",
	}
	usedBytes = Metric{
		Name: "gpurec_process_used_memory_bytes", OTel: "gpurec.process.memory.usage", Kind: gauge,
		Unit: "By", Labels: processLabels, Help: "Memory of the processes as NVML reports it, summed over GPUs",
	}
)

// Metrics of GPUs that are no single sample.
var (
	xidTotal = Metric{
		Name: "gpurec_xid_total", OTel: "gpurec.xid", Kind: counter, Unit: "1",
		Labels: with(gpuLabels, "xid"), Help: "Xid errors since the agent began; -1: codes above the bound of 64",
	}
	throttled = Metric{
		Name: "gpurec_clock_reason", OTel: "gpurec.clock.reason", Kind: gauge, Unit: "1",
		Labels: with(gpuLabels, "reason"), Help: "1 if the latest sample has this reason for reduced clocks",
	}
)

// clockReasons are the bits of clock_event_reasons.
var clockReasons = []struct {
	bit  int
	name string
}{
	{1, "idle"},
	{2, "application_clocks"},
	{4, "software_power_cap"},
	{8, "hardware_slowdown"},
	{16, "sync_boost"},
	{32, "software_thermal"},
	{64, "hardware_thermal"},
	{128, "power_brake"},
	{256, "display_clocks"},
}

// Table has all metrics.
var Table = append([]Metric{
	agentUp, agentStart, callsTotal, lostTotal, overheadRatio, ringBytes, captureCount, captureBytes, sealing,
	sealFailures, triggersTotal, processes, processCalls, launches, graphLaunches, allocations, frees, live, copyCalls,
	copyBytes, syncCalls, syncSeconds, errorsTotal, usedBytes, xidTotal, throttled,
}, samples...)

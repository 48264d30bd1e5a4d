package format

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Schema version that this package writes. Readers refuse a newer major version and accept all
// older versions. A newer minor version only adds columns or kinds of rows.
const (
	SchemaMajor = 1
	SchemaMinor = 5
)

// Keys of the Parquet key-value metadata.
const (
	parquetKeySchema   = "gpurec.schema"
	parquetKeyMeta     = "gpurec.meta"
	parquetKeyComplete = "gpurec.complete"
)

// Values of Meta.Complete: how a recording ended.
const (
	CompleteYes       = "true"      // the recorder finished it
	CompleteRecovered = "recovered" // gpurec recover merged its segments after a crash
	CompleteNo        = "false"     // a segment of an unfinished recording
	CompleteFrozen    = "frozen"    // a trigger kept this part of a running recording; since 1.2
)

// Values of Meta.Classes: classes of calls that gpurec record --record selects. Calls about
// contexts and devices are always recorded.
const (
	RecordMemory     = "memory"     // allocations, frees, mappings, pools, memory of other processes
	RecordLaunch     = "launch"     // kernels, graphs, host functions, and the lookups that name kernels
	RecordCopy       = "copy"       // copies and memsets
	RecordSync       = "sync"       // waits and queries
	RecordGraph      = "graph"      // building and instantiating graphs, stream capture
	RecordStream     = "stream"     // streams and events
	RecordModule     = "module"     // modules, libraries, links
	RecordAllocator  = "allocator"  // events of PyTorch's caching allocator
	RecordCollective = "collective" // calls of NCCL
)

// RecordClasses lists all values of Meta.Classes.
var RecordClasses = []string{
	RecordMemory,
	RecordLaunch,
	RecordCopy,
	RecordSync,
	RecordGraph,
	RecordStream,
	RecordModule,
	RecordAllocator,
	RecordCollective,
}

// Meta describes a recording as a whole. The Parquet footer stores it as JSON, in the file and in
// every segment. In a segment, its values are those at the time of writing.
type Meta struct {
	// GpurecVersion is the version of the recorder, as gpurec version prints it.
	GpurecVersion string `json:"gpurec_version"`
	// Command is the recorder's command line, one element per argument.
	Command []string `json:"command"`
	// Host is the host name, BootID the kernel's random ID of the current boot.
	Host   string `json:"host"`
	BootID string `json:"boot_id"`
	// OSRelease is the kernel release as uname(2) returns it. Arch is the CPU architecture in Go's
	// notation.
	OSRelease string `json:"os_release"`
	Arch      string `json:"arch"`
	// StartNs and EndNs bound the recording, Unix ns: from the time all probes were attached until
	// no more calls were recorded. In a segment, EndNs is the time of writing. In a ring that has
	// dropped rows, all events since StartNs are present.
	StartNs int64 `json:"start_ns"`
	EndNs   int64 `json:"end_ns"`
	// ClockOffsetNs is added to CLOCK_MONOTONIC to get the times in the file, in ns.
	ClockOffsetNs int64 `json:"clock_offset_ns"`
	// ClockStepNs is how far CLOCK_REALTIME had moved relative to the file's clock by the end, in
	// ns.
	ClockStepNs   int64  `json:"clock_step_ns"`
	DriverVersion string `json:"driver_version,omitempty"`
	CUDAVersion   string `json:"cuda_version,omitempty"`
	// Stacks is the stack mode: fp (recorded) or off.
	Stacks string `json:"stacks"`
	// Attach is the kernel interface of the probes: uprobe_multi or perf.
	// Probes is the number of attached probes.
	Attach string `json:"attach"`
	Probes int    `json:"probes"`
	// Classes are the recorded classes of calls, from RecordClasses. An empty list means all
	// classes. Since 1.1.
	Classes []string `json:"classes,omitempty"`
	// Calls counts calls by class: seen, recorded, lost and so on.
	Calls map[string]CallCount `json:"calls"`
	// Progress counts rows of kind progress. It is nil if there are none. Since 1.2.
	Progress *RowCount `json:"progress,omitempty"`
	// HostRows counts rows of class host. It is nil if there are none. Since 1.2.
	HostRows *RowCount `json:"host_rows,omitempty"`
	// KernelArgs counts rows of kind kernel_args. It is nil without record --kernel-args. Since 1.2.
	KernelArgs *KernelArgsCount `json:"kernel_args,omitempty"`
	// Late describes calls that were made before their process was probed. nil: there are none, or the
	// recorder attached to running processes and no others. Since 1.2.
	Late *Late `json:"late,omitempty"`
	// Cost is the recorder's own use of CPU, memory and disk.
	Cost Cost `json:"cost"`
	// Machine describes the host. Clocks are the kernel's clocks at start and end. Since 1.1.
	Machine Machine         `json:"machine"`
	Clocks  []ClockSnapshot `json:"clocks,omitempty"`
	// Ring is set if the recording kept only its last part. Since 1.1.
	Ring *Ring `json:"ring,omitempty"`
	// MaxBytes is the size limit in bytes that ended the recording. 0 means that no limit ended it.
	// Since 1.1.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Trigger is set if the recording is a part of another one, which a trigger kept. Since 1.2.
	Trigger *Trigger `json:"trigger,omitempty"`
	// Complete is one of CompleteYes, CompleteRecovered, CompleteNo and CompleteFrozen.
	Complete string `json:"-"`
}

// KernelArgsCount counts the arguments of kernel launches: Read = Recorded + Lost + Dropped + Replaced.
type KernelArgsCount struct {
	RowCount
	// Read counts launches whose arguments were read.
	Read int64 `json:"read"`
	// Replaced counts arguments that were not written, because enough later launches of the stream were kept.
	Replaced int64 `json:"replaced,omitempty"`
	// PerStream is the number of launches of a stream that are kept and written at a failure or at the end. 0:
	// all launches are written.
	PerStream int `json:"per_stream,omitempty"`
}

// Ring describes the limits of a ring recording, and the rows that it dropped: all events that
// ended before Meta.StartNs, and a few that ended at that time.
type Ring struct {
	KeepNs   int64 `json:"keep_ns,omitempty"`   // age limit of events in ns; 0: no limit
	MaxBytes int64 `json:"max_bytes,omitempty"` // limit of segments and finished file together; 0: no limit
	// AttachedNs is the start of the recording, Unix ns.
	AttachedNs int64 `json:"attached_ns"`
	// DroppedRows counts dropped rows by class of row groups: sample, memory, call, allocator,
	// progress.
	DroppedRows map[string]int64 `json:"dropped_rows,omitempty"`
}

// Late describes processes whose first calls are missing: they called CUDA before their probes were
// in place. Notes with the name NoteBeginning have details.
type Late struct {
	// Processes counts the processes whose number of missing calls is unknown.
	Processes int64 `json:"processes"`
	// CompleteNs is the time from which all calls of all processes are recorded, Unix ns.
	CompleteNs int64 `json:"complete_ns"`
	// Missed counts, by class of call, the missing calls that are known from the program's own
	// counters.
	Missed map[string]int64 `json:"missed,omitempty"`
}

// TotalMissed returns the number of missing calls that are known. It accepts a nil Late.
func (l *Late) TotalMissed() (n int64) {
	if l != nil {
		for _, missed := range l.Missed {
			n += missed
		}
	}
	return n
}

// CallCount counts the calls of one class. Every call whose entry was seen is in one of three
// counters: Seen = Recorded + Lost + Dropped.
type CallCount struct {
	Seen     int64 `json:"seen"`
	Recorded int64 `json:"recorded"`
	// Open counts those of Recorded that had not returned at the end of the recording.
	Open int64 `json:"open,omitempty"`
	// Abandoned counts those of Recorded that never returned although their thread made later
	// calls.
	Abandoned int64 `json:"abandoned,omitempty"`
	// Lost counts calls that were seen but could not be written.
	Lost int64 `json:"lost,omitempty"`
	// Dropped counts calls that were recorded and then dropped to keep a ring within its limits.
	// Since 1.1.
	Dropped int64 `json:"dropped,omitempty"`
	// Counted counts calls of frequent functions that are only counted. They are not in Seen.
	Counted int64 `json:"counted,omitempty"`
	// NoTable counts those of Recorded whose stack is cut or missing, because the unwind tables of the
	// process were not loaded yet. Since 1.2.
	NoTable int64 `json:"no_table,omitempty"`
}

// RowCount counts rows of one class.
type RowCount struct {
	// Recorded rows are in the recording. Lost rows were seen and could not be written. Dropped rows
	// were recorded and then dropped to keep a ring within its limits.
	Recorded int64 `json:"recorded"`
	Lost     int64 `json:"lost,omitempty"`
	Dropped  int64 `json:"dropped,omitempty"`
}

// Cost is the recorder's own use of CPU, memory and disk.
type Cost struct {
	// CPUNs is the user and system time of the recorder in ns, from attaching to the finished file.
	CPUNs    int64 `json:"cpu_ns"`
	RSSBytes int64 `json:"rss_bytes"` // peak resident set size
	// AttachNs is the time that attaching the probes took, in ns.
	AttachNs int64 `json:"attach_ns"`
	// DetachNs is the time that detaching the probes took, in ns. It is 0 for perf uprobes, which
	// are removed while the file is finished.
	DetachNs int64 `json:"detach_ns"`
	// BPFRunNs and BPFRuns are the run time and the number of runs of BPF programs, from the
	// kernel's statistics. They are 0 if those statistics could not be enabled.
	BPFRunNs int64 `json:"bpf_run_ns"`
	BPFRuns  int64 `json:"bpf_runs"`
	// FileBytes is the size of the recording in bytes.
	FileBytes int64 `json:"file_bytes"`
	// Sampling is the time spent on querying NVML, by GPU. CPUNs includes its CPU time. RowsDropped
	// counts samples and facts that were dropped because the writer's queue was full. Since 1.1.
	Sampling    []SamplingCost `json:"sampling,omitempty"`
	RowsDropped int64          `json:"rows_dropped,omitempty"`
	// Holds is how often threads of a started command were held until probes and unwind tables
	// were in place, and HeldNs the sum of these times. Unheld is how many threads ran before that.
	Holds  int64 `json:"holds,omitempty"`
	HeldNs int64 `json:"held_ns,omitempty"`
	Unheld int64 `json:"unheld,omitempty"`
	// GPUTimeCPUNs is the CPU time of reading the progress of channels outside of probes. CPUNs
	// includes it. GPUTimeTorn counts readings that were discarded, because the GPU had changed only
	// one of two words. Since 1.2.
	GPUTimeCPUNs int64 `json:"gpu_time_cpu_ns,omitempty"`
	GPUTimeTorn  int64 `json:"gpu_time_torn,omitempty"`
	// Probes is the overhead of probes in the recorded processes; nil: it was not measured. Since 1.5.
	Probes *ProbeCost `json:"probes,omitempty"`
}

// Machine describes the host of a recording.
type Machine struct {
	CPU         string `json:"cpu,omitempty"` // CPU model, as the kernel names it
	CPUs        int    `json:"cpus"`          // number of online CPUs
	MemoryBytes int64  `json:"memory_bytes"`
}

// ClockSnapshot has the kernel's clocks read at the same time, with an error of at most
// UncertainNs.
type ClockSnapshot struct {
	MonotonicNs int64 `json:"monotonic_ns"`
	RealtimeNs  int64 `json:"realtime_ns"`
	BoottimeNs  int64 `json:"boottime_ns"`
	UncertainNs int64 `json:"uncertain_ns"`
	// Sync says how well CLOCK_REALTIME is synchronized with other hosts. nil: unknown. Since 1.2.
	Sync *ClockSync `json:"sync,omitempty"`
}

// ClockSync describes the synchronization of CLOCK_REALTIME. The source is adjtimex(2).
type ClockSync struct {
	// Synchronized is false if no program has synchronized the clock: STA_UNSYNC.
	Synchronized bool `json:"synchronized"`
	// MaxErrorNs bounds the error as the synchronizing program states it. EstimatedErrorNs is its estimate.
	MaxErrorNs       int64 `json:"max_error_ns"`
	EstimatedErrorNs int64 `json:"estimated_error_ns"`
}

// Totals returns the sum of the call counts of all classes.
func (m *Meta) Totals() CallCount {
	var t CallCount
	for _, c := range m.Calls {
		t.Seen += c.Seen
		t.Recorded += c.Recorded
		t.Open += c.Open
		t.Abandoned += c.Abandoned
		t.Lost += c.Lost
		t.Dropped += c.Dropped
		t.Counted += c.Counted
		t.NoTable += c.NoTable
	}
	return t
}

// HasEnd reports whether the recording has everything up to EndNs, also calls that had not returned. A
// recording that was cut off lacks them.
func (m *Meta) HasEnd() bool { return m.Complete == CompleteYes || m.Complete == CompleteFrozen }

// Has reports whether the recording includes calls of a class.
func (m *Meta) Has(class string) bool {
	return len(m.Classes) == 0 || slices.Contains(m.Classes, class)
}

// VersionError is the error for a recording whose major schema version is newer than the one this
// package reads.
type VersionError struct{ Got, Max int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("is format %d, this gpurec reads up to %d", e.Got, e.Max)
}

// parseMeta decodes the key-value metadata of a recording or segment.
func parseMeta(lookup func(string) (string, bool)) (*Meta, error) {
	schema, ok := lookup(parquetKeySchema)
	if !ok {
		return nil, ErrNotRecording
	}
	majorText, _, _ := strings.Cut(schema, ".")
	major, err := strconv.Atoi(majorText)
	if err != nil {
		return nil, fmt.Errorf("read schema version %q: %w", schema, err)
	}
	if major > SchemaMajor {
		return nil, &VersionError{Got: major, Max: SchemaMajor}
	}
	meta := new(Meta)
	if text, ok := lookup(parquetKeyMeta); ok {
		if err := json.Unmarshal([]byte(text), meta); err != nil {
			return nil, fmt.Errorf("read metadata: %w", err)
		}
	}
	meta.Complete = CompleteNo
	if text, ok := lookup(parquetKeyComplete); ok {
		meta.Complete = text
	}
	return meta, nil
}

// keyValuePairs returns the metadata as key-value pairs for the Parquet footer.
func (m *Meta) keyValuePairs() ([][2]string, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return [][2]string{
		{parquetKeySchema, fmt.Sprintf("%d.%d", SchemaMajor, SchemaMinor)},
		{parquetKeyMeta, string(text)},
		{parquetKeyComplete, m.Complete},
	}, nil
}

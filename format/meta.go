package format

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The schema version this package writes. A reader refuses a newer major version
// and reads all older ones; a newer minor version only adds columns or kinds.
const (
	SchemaMajor = 1
	SchemaMinor = 1
)

// Keys of the Parquet key-value metadata.
const (
	keySchema   = "gpurec.schema"
	keyMeta     = "gpurec.meta"
	keyComplete = "gpurec.complete"
)

// How a recording came to its end: the values of Meta.Complete.
const (
	CompleteYes       = "true"      // the recorder finished it
	CompleteRecovered = "recovered" // put together by gpurec recover after a crash
	CompleteNo        = "false"     // a segment of a recording that is, or was, under way
)

// Classes of calls that a recording can be restricted to: the values of Meta.Classes. Calls about
// contexts and devices are always recorded.
const (
	RecordMemory    = "memory"    // allocations, frees, mappings, pools, memory of other processes
	RecordLaunch    = "launch"    // kernels, graphs, host functions, and the lookups that name kernels
	RecordCopy      = "copy"      // copies and memsets
	RecordSync      = "sync"      // waits and queries
	RecordGraph     = "graph"     // building and instantiating graphs, stream capture
	RecordStream    = "stream"    // streams and events
	RecordModule    = "module"    // modules, libraries, links
	RecordAllocator = "allocator" // events of PyTorch's caching allocator
)

// RecordClasses lists all classes.
var RecordClasses = []string{
	RecordMemory,
	RecordLaunch,
	RecordCopy,
	RecordSync,
	RecordGraph,
	RecordStream,
	RecordModule,
	RecordAllocator,
}

// Meta holds the facts about a recording as a whole, stored as JSON in the Parquet
// footer of the file and of every segment (there as known at that moment).
type Meta struct {
	// GpurecVersion is the version of the recorder.
	GpurecVersion string `json:"gpurec_version"`
	// Command is the recorder's command line.
	Command []string `json:"command"`
	Host    string   `json:"host"`
	BootID  string   `json:"boot_id"`
	// OSRelease is the kernel release as uname(2) gives it; Arch as Go names it.
	OSRelease string `json:"os_release"`
	Arch      string `json:"arch"`
	// StartNs and EndNs bound the recording, Unix ns: from all probes in place until no
	// more calls were seen (in a segment: the time it was written). Of a ring that has dropped
	// rows, StartNs is the time from which on it has them all.
	StartNs int64 `json:"start_ns"`
	EndNs   int64 `json:"end_ns"`
	// ClockOffsetNs was added to CLOCK_MONOTONIC to get every time in the file.
	ClockOffsetNs int64 `json:"clock_offset_ns"`
	// ClockStepNs is how far CLOCK_REALTIME had moved against that clock by the end.
	ClockStepNs   int64  `json:"clock_step_ns"`
	DriverVersion string `json:"driver_version,omitempty"`
	CUDAVersion   string `json:"cuda_version,omitempty"`
	// Stacks is the stack mode: fp or off.
	Stacks string `json:"stacks"`
	// Attach says how the probes were attached: uprobe_multi or perf.
	Attach string `json:"attach"`
	Probes int    `json:"probes"`
	// Classes are the classes of calls that were recorded, some of RecordClasses; none: all. Since
	// 1.1.
	Classes []string `json:"classes,omitempty"`
	// Calls counts what happened per class of call, by the class's name.
	Calls map[string]CallCount `json:"calls"`
	// Cost is what the recording itself cost.
	Cost Cost `json:"cost"`
	// Machine is the host, Clocks the kernel's clocks at start and end. Since 1.1.
	Machine Machine         `json:"machine"`
	Clocks  []ClockSnapshot `json:"clocks,omitempty"`
	// Ring is set if only the last part was kept. Since 1.1.
	Ring *Ring `json:"ring,omitempty"`
	// MaxBytes is the bound that ended the recording, 0: none did. Since 1.1.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Complete is one of the Complete constants.
	Complete string `json:"-"`
}

// Ring says how much of a recording that drops its oldest rows was to be kept, and what was
// dropped: all events that ended before Meta.StartNs, and a few that ended then.
type Ring struct {
	KeepNs   int64 `json:"keep_ns,omitempty"`   // 0: no bound
	MaxBytes int64 `json:"max_bytes,omitempty"` // on disk, segments and finished file together; 0: no bound
	// AttachedNs is when the recording began, Unix ns.
	AttachedNs int64 `json:"attached_ns"`
	// DroppedRows are rows by class of row groups: sample, memory, call, allocator.
	DroppedRows map[string]int64 `json:"dropped_rows,omitempty"`
}

// CallCount accounts for every call of one class whose entry was seen:
// Seen = Recorded + Lost + Dropped.
type CallCount struct {
	Seen     int64 `json:"seen"`
	Recorded int64 `json:"recorded"`
	// Open is how many of the Recorded had not returned at the end.
	Open int64 `json:"open,omitempty"`
	// Abandoned is how many of the Recorded never returned although the thread went on.
	Abandoned int64 `json:"abandoned,omitempty"`
	Lost      int64 `json:"lost,omitempty"`
	// Dropped calls were recorded and taken out again to keep a ring in its bounds. Since 1.1.
	Dropped int64 `json:"dropped,omitempty"`
	// Counted is how many hot calls were only counted; they are not in Seen.
	Counted int64 `json:"counted,omitempty"`
}

// Cost is the recorder's own use of the machine.
type Cost struct {
	// CPUNs is user + system time of the recorder from attached to finished.
	CPUNs    int64 `json:"cpu_ns"`
	RSSBytes int64 `json:"rss_bytes"` // peak resident set
	AttachNs int64 `json:"attach_ns"`
	// DetachNs is 0 for perf uprobes: they are removed when the file is finished.
	DetachNs int64 `json:"detach_ns"`
	// BPFRunNs and BPFRuns are time and number of BPF program runs, from the
	// kernel's own statistics; 0 when those could not be switched on.
	BPFRunNs  int64 `json:"bpf_run_ns"`
	BPFRuns   int64 `json:"bpf_runs"`
	FileBytes int64 `json:"file_bytes"`
	// Sampling is what asking NVML took, per GPU; its CPU time is in CPUNs. RowsDropped
	// counts samples and facts that found the writer too busy. Since 1.1.
	Sampling    []SamplingCost `json:"sampling,omitempty"`
	RowsDropped int64          `json:"rows_dropped,omitempty"`
	// Holds counts how often threads of a started program were held until what they had loaded
	// was covered, HeldNs sums up how long. Unheld counts those that ran before that.
	Holds  int64 `json:"holds,omitempty"`
	HeldNs int64 `json:"held_ns,omitempty"`
	Unheld int64 `json:"unheld,omitempty"`
}

// Machine is the host of a recording.
type Machine struct {
	CPU         string `json:"cpu,omitempty"` // model, as the kernel names it
	CPUs        int    `json:"cpus"`          // online
	MemoryBytes int64  `json:"memory_bytes"`
}

// ClockSnapshot is the kernel's clocks read at one moment, to within UncertainNs.
type ClockSnapshot struct {
	MonotonicNs int64 `json:"monotonic_ns"`
	RealtimeNs  int64 `json:"realtime_ns"`
	BoottimeNs  int64 `json:"boottime_ns"`
	UncertainNs int64 `json:"uncertain_ns"`
}

// Totals sums the call counts over all classes.
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
	}
	return t
}

// Has reports whether calls of a class were recorded.
func (m *Meta) Has(class string) bool {
	return len(m.Classes) == 0 || slices.Contains(m.Classes, class)
}

// VersionError says that a recording was written by a newer major version of the
// schema than this package reads.
type VersionError struct{ Got, Max int }

func (e *VersionError) Error() string {
	return fmt.Sprintf("is format %d, this gpurec reads up to %d", e.Got, e.Max)
}

// parseMeta decodes the key-value metadata of a recording or segment.
func parseMeta(lookup func(string) (string, bool)) (*Meta, error) {
	schema, ok := lookup(keySchema)
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
	if text, ok := lookup(keyMeta); ok {
		if err := json.Unmarshal([]byte(text), meta); err != nil {
			return nil, fmt.Errorf("read metadata: %w", err)
		}
	}
	meta.Complete = CompleteNo
	if text, ok := lookup(keyComplete); ok {
		meta.Complete = text
	}
	return meta, nil
}

// pairs returns the metadata as Parquet key-value pairs.
func (m *Meta) pairs() ([][2]string, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return [][2]string{
		{keySchema, fmt.Sprintf("%d.%d", SchemaMajor, SchemaMinor)},
		{keyMeta, string(text)},
		{keyComplete, m.Complete},
	}, nil
}

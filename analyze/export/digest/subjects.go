package digest

import (
	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// Severities of findings, as in the report rules.
const (
	problem = "problem"
	notice  = "notice"
	info    = "info"
)

// subject describes what a digest takes from one report.
type subject struct {
	report string
	// isIn reports whether a recording has what the report reads. nil means always.
	isIn func(*timeline.Timeline) bool
	// facts and totals are the keys of the values that the digest shows of each recording.
	facts, totals []string
	tables        []verdictTable
}

// verdictTable describes a table of a report whose rows can be findings.
type verdictTable struct {
	name string
	// column has the verdict. An empty column means that each row is a finding of verdict "".
	column string
	// first is the key of the total with the number of rows, at the start of the table, that are findings. Others
	// are none. "" means all rows.
	first    string
	verdicts map[string]verdict
	values   []string // columns that a digest shows
	where    string   // column with the call site, GPU or process
	// what is the column, or whatFact the fact, with the finding in words. Without both it is the evidence of the row.
	what, whatFact string
	// skips is a word in that column of rows that another report explains.
	skips string
}

// verdict describes rows with one verdict.
type verdict struct {
	severity string
	// rules are the rules about the same problem. If one of them fires, the row is evidence of its hit.
	rules []string
	// total is the key of the total that counts the rows, also those that the table left out; "" if there is none.
	total string
}

// always is the map of verdicts of a table whose rows are all findings.
func always(v verdict) map[string]verdict { return map[string]verdict{"": v} }

// gpuRules are the rules about states of a GPU.
var gpuRules = []string{
	"gpu-health", "throttling", "memory-near-limit", "gpu-idle", "low-sm-activity", "low-occupancy",
	"tensor-cores-unused",
}

// lateHostRules are the rules about a host that launches late.
var lateHostRules = []string{
	"dataloader-bound", "gc-pause", "gil-bound", "cpu-throttled", "oversubscribed-cpu", "io-bound", "launch-bound",
	"gpu-idle",
}

// subjects are the reports of a digest, apart from summary and rules, in the order of their findings.
var subjects = []subject{
	{
		report: "xid", facts: []string{"result"}, totals: []string{"xids", "hardware_xids", "xids_before"},
		tables: []verdictTable{{
			name:     "xids",
			verdicts: always(verdict{problem, []string{"xid", "broken-context"}, ""}),
			values:   []string{"code", "name", "at_ns", "device", "pid", "process", "meaning", "text"},
			where:    "process",
		}},
	},
	{
		report: "errors", facts: []string{"result"},
		totals: []string{"failed_calls", "asynchronous_errors", "invalid_frees", "double_frees"},
		tables: []verdictTable{
			{
				name:     "asynchronous",
				verdicts: always(verdict{problem, []string{"broken-context", "xid"}, ""}),
				values:   []string{"result_name", "result", "call", "at_ns", "pid", "tid", "xid"},
				where:    "call",
			},
			{
				name:     "suspects",
				verdicts: always(verdict{"", []string{"broken-context"}, ""}),
				values:   []string{"kernel_short", "before_ns", "stream", "site"},
				where:    "site",
			},
			{
				name:     "invalid_frees",
				verdicts: always(verdict{problem, []string{"invalid-free"}, ""}),
				values:   []string{"verdict", "calls", "name", "bytes", "site", "allocated_site", "freed_site"},
				where:    "site",
			},
			{
				name: "errors",
				verdicts: always(verdict{"", []string{
					"unchecked-error", "broken-context", "failed-alloc-in-loop",
				}, ""}),
				values: []string{"calls", "class", "name", "result_name", "first_ns", "last_ns", "site"},
				where:  "site",
			},
		},
	},
	{
		report: "hang",
		facts:  []string{"result", "hangs", "fault", "order", "missing", "next", "rank_confidence", "look_at"},
		totals: []string{"hanging", "polling", "waiting", "alive", "silent", "silent_max_ns", "rank_faults"},
		tables: []verdictTable{
			{
				name: "processes", column: "verdict",
				verdicts: map[string]verdict{"hanging": {problem, []string{"hang"}, "hanging"}},
				values:   []string{"verdict", "silent_ns", "pid", "process", "last_kernel", "launch_ago_ns"},
				where:    "process",
			},
			{
				name: "threads", column: "verdict",
				verdicts: map[string]verdict{"hanging": {"", []string{"hang"}, ""}},
				values:   []string{"verdict", "since_ns", "thread", "call", "waits_for", "site"},
				where:    "site",
			},
			{
				name: "ranks", verdicts: always(verdict{"", []string{"rank-missing", "collective-mismatch"}, ""}),
				values: []string{"ranks", "count", "state", "at", "since_ns", "needs", "where"},
				where:  "where",
			},
		},
	},
	{
		report: "oom", facts: []string{"result"}, totals: []string{"failures", "fatal", "retried"},
		tables: []verdictTable{{
			name: "failures",
			verdicts: always(verdict{
				notice, []string{"out-of-memory", "oom-fragmentation", "failed-alloc-in-loop"}, "failures",
			}),
			values: []string{
				"class", "outcome", "at_ns", "requested_bytes", "free_bytes", "allocated_bytes", "unused_bytes",
				"largest_gap_bytes", "asked_by", "device", "pid", "site",
			},
			where: "site",
		}},
	},
	{
		report: "leaks",
		totals: []string{"growing", "exit_leaks", "retained", "live_bytes", "peak_bytes", "growth_bytes_per_min"},
		tables: []verdictTable{{
			name: "leaks", column: "verdict",
			verdicts: map[string]verdict{
				"growing":   {problem, []string{"growing-site"}, "growing"},
				"exit leak": {info, []string{"exit-leak"}, "exit_leaks"},
			},
			values: []string{
				"verdict", "live_bytes", "live_count", "allocs", "freed_pct", "growth_bytes_per_min", "oom_in_ns",
				"memory_kind", "site",
			},
			where: "site",
		}},
	},
	{
		report: "blocks",
		isIn:   func(t *timeline.Timeline) bool { return blockreadings.Has(t) },
		facts:  []string{"result", "next"},
		totals: []string{
			"growing", "growing_allocators", "grown_bytes", "growth_bytes_per_min", "explained_growth_pct", "readings",
			"refused", "unused",
		},
		tables: []verdictTable{{
			name: "sizes", column: "verdict",
			verdicts: map[string]verdict{"growing": {notice, []string{"growing-site"}, "growing"}},
			values: []string{
				"verdict",
				"live_bytes",
				"live_count",
				"first_count",
				"grown_bytes",
				"growth_bytes_per_min",
				"peak_bytes",
				"age_median_ns",
				"pool",
				"stream",
				"device",
				"pid",
				"size",
			},
			where: "size", whatFact: "result",
		}},
	},
	{
		report: "frag", totals: []string{"fragmented", "rising", "kept_bytes", "unused_bytes", "reserved_bytes"},
		tables: []verdictTable{
			{
				name: "spaces", column: "verdict",
				verdicts: map[string]verdict{
					"fragmented": {notice, []string{"oom-fragmentation", "cache-growth"}, "fragmented"},
					"grows":      {notice, []string{"cache-growth"}, ""},
				},
				values: []string{
					"verdict", "reserved_bytes", "active_bytes", "kept_bytes", "largest_gap_bytes", "saved_bytes",
					"pid", "space",
				},
				where: "space",
			},
			{
				name: "trends", column: "direction",
				verdicts: map[string]verdict{"rising": {notice, nil, "rising"}},
				values:   []string{"direction", "first_bytes", "last_bytes", "growth_bytes_per_min", "pid", "owner"},
				where:    "owner",
			},
		},
	},
	{
		report: "ranks", facts: []string{"verdict", "because", "gain", "also", "next"},
		totals: []string{"ranks_recorded", "late_ranks", "slow_transfers", "steps", "step_ns", "late_ns"},
		tables: []verdictTable{{
			name: "ranks", first: "late_ranks", verdicts: always(verdict{notice, []string{"straggler"}, ""}),
			values: []string{"ranks", "count", "host", "step_ns", "own_ns", "late_ns", "wait_ns", "since", "why"},
			where:  "host", whatFact: "verdict",
		}},
	},
	{
		report: "gpu", totals: []string{"problems", "busy_pct_min", "idle_pct_max", "throttled_pct_max"},
		tables: []verdictTable{{
			name: "verdicts", column: "level",
			verdicts: map[string]verdict{problem: {problem, gpuRules, ""}, notice: {notice, gpuRules, ""}},
			values:   []string{"level", "device", "device_name", "verdict"},
			where:    "device_name",
		}},
	},
	{
		report: "gaps", totals: []string{"gaps", "gap_pct", "gap_max_ns", "host_explained_pct"},
		tables: []verdictTable{
			{
				name:     "causes",
				verdicts: always(verdict{"", []string{"gpu-idle", "exposed-copies", "exposed-communication"}, ""}),
				values:   []string{"cause", "share_pct", "total_ns", "gaps", "longest_ns", "pid", "device", "line"},
				where:    "line",
			},
			{
				name: "host", verdicts: always(verdict{"", lateHostRules, ""}),
				values: []string{"cause", "host_pct", "host_ns", "certain_ns", "gaps", "longest_ns", "pid", "line"},
				where:  "line",
			},
		},
	},
	{
		report: "steps", facts: []string{"result"}, totals: []string{"steps", "outliers", "slow_operations"},
		tables: []verdictTable{{
			name: "outliers", verdicts: always(verdict{info, nil, "outliers"}),
			values: []string{"duration_ns", "excess_ns", "cause", "at_ns", "step", "pid", "site", "detail"},
			where:  "site", whatFact: "result",
		}},
	},
}

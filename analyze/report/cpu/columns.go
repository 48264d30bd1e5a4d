package cpu

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "how the threads that launch work or wait for it spent their time, or how to record that",
	},
	{
		Key: "confidence", Title: "confidence", Unit: report.UnitText,
		About: "high, medium or low, with the reasons: lost or unreadable rows, and time without a stack",
	},
	{Key: "mode", Title: "", Unit: report.UnitText, About: "value of --host: auto or full"},
	{
		Key: "min_wait_ns", Title: "", Unit: report.UnitNs,
		About: "shortest wait that has a row. Shorter waits are part of the times of a thread only",
	},
	{
		Key: "sample_hz", Title: "", Unit: report.UnitRatio,
		About: "number of snapshots of each thread per second, for stacks of waits and for CPU samples",
	},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{Key: "threads", Title: "threads", Unit: report.UnitCount, About: "threads with times, waits or CPU samples"},
	{Key: "on_cpu_ns", Title: "on CPU", Unit: report.UnitNs, About: "measured: time on a processor, over all threads"},
	{
		Key: "run_queue_ns", Title: "in run queue", Unit: report.UnitNs,
		About: "measured: time in a run queue, over all threads",
	},
	{Key: "sleeping_ns", Title: "sleeping", Unit: report.UnitNs, About: "measured: time in waits that a signal ends"},
	{
		Key: "uninterruptible_ns", Title: "uninterruptible", Unit: report.UnitNs,
		About: "measured: time in waits that a signal does not end",
	},
	{Key: "waits", Title: "waits", Unit: report.UnitCount, About: "waits with a row, which begin or end in the window"},
	{Key: "wait_ns", Title: "waited", Unit: report.UnitNs, About: "measured: duration of these waits in the window"},
	{
		Key: "stack_pct", Title: "with stack", Unit: report.UnitPercent,
		About: "share of waited that has a stack",
	},
	{
		Key: "reason_pct", Title: "with reason", Unit: report.UnitPercent,
		About: "share of waited whose reason is known",
	},
	{Key: "samples", Title: "CPU samples", Unit: report.UnitCount, About: "CPU samples in the window"},
	{
		Key: "sampled_ns", Title: "sampled", Unit: report.UnitNs,
		About: "estimated: CPU time that the samples represent",
	},
	{Key: "gc_pauses", Title: "GC pauses", Unit: report.UnitCount, About: "pauses for garbage collections"},
	{Key: "gc_ns", Title: "in GC", Unit: report.UnitNs, About: "duration of these pauses in the window"},
	{
		Key: "throttled_ns", Title: "throttled", Unit: report.UnitNs,
		About: "longest time for which a cgroup throttled a process, over all cgroups",
	},
	{Key: "lost_rows", Title: "lost rows", Unit: report.UnitCount, About: "rows of class host that were lost"},
	{
		Key: "bad_rows", Title: "unreadable rows", Unit: report.UnitCount,
		About: "rows with impossible values: negative durations, unknown kinds of metrics, or unreadable messages",
	},
}

// Columns that several tables share.
var (
	pidColumn    = report.Column{Key: "pid", Title: "", Unit: report.UnitID, About: "process id"}
	tidColumn    = report.Column{Key: "tid", Title: "", Unit: report.UnitID, About: "thread id"}
	threadColumn = report.Column{
		Key: "thread", Title: "THREAD", Unit: report.UnitText,
		About: "thread id and name, with the process id if there are several processes",
	}
	processColumn = report.Column{
		Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "process id, name and rank",
	}
)

// threadColumns are the columns of the table of threads.
var threadColumns = []report.Column{
	{
		Key: "on_cpu_ns", Title: "ON CPU", Unit: report.UnitNs,
		About: "measured: time on a processor. Absent without counters of the thread",
	},
	{
		Key: "run_queue_ns", Title: "RUN QUEUE", Unit: report.UnitNs,
		About: "measured: time in which the thread was runnable and waited for a processor",
	},
	{Key: "sleeping_ns", Title: "SLEEPING", Unit: report.UnitNs, About: "measured: time in waits that a signal ends"},
	{
		Key: "uninterruptible_ns", Title: "UNINTERRUPTIBLE", Unit: report.UnitNs,
		About: "measured: time in waits that a signal does not end, such as those for a disk",
	},
	{
		Key: "covered_pct", Title: "COVERED", Unit: report.UnitPercent,
		About: "sum of the four times as a share of the window",
	},
	{
		Key:   "launches",
		Title: "LAUNCHES",
		Unit:  report.UnitCount,
		About: "recorded launches of the thread in the window",
	},
	{Key: "switches", Title: "SWITCHES", Unit: report.UnitCount, About: "context switches"},
	{
		Key: "waits", Title: "WAITS", Unit: report.UnitCount,
		About: "waits with a row. Threads that neither launch work nor wait for it have none",
	},
	{Key: "wait_ns", Title: "WAITED", Unit: report.UnitNs, About: "measured: duration of these waits in the window"},
	{
		Key: "stack_pct", Title: "STACKS", Unit: report.UnitPercent,
		About: "share of WAITED that has a stack",
	},
	{Key: "samples", Title: "SAMPLES", Unit: report.UnitCount, About: "CPU samples"},
	{Key: "major_faults", Title: "", Unit: report.UnitCount, About: "page faults that waited for a disk"},
	{
		Key: "gil_held_pct", Title: "GIL HELD", Unit: report.UnitPercent,
		About: "estimated: share of the readings of the interpreter in which the thread held the GIL",
	},
	{
		Key: "gil_waited_pct", Title: "GIL WAIT", Unit: report.UnitPercent,
		About: "estimated: share of the readings of the interpreter in which the thread waited for the GIL",
	},
	threadColumn,
	pidColumn,
	tidColumn,
}

// statisticColumns are the columns about a group of waits.
var statisticColumns = []report.Column{
	{Key: "wait_ns", Title: "TOTAL", Unit: report.UnitNs, About: "measured: sum of the waits in the window"},
	{Key: "wait_pct", Title: "%", Unit: report.UnitPercent, About: "TOTAL as a share of all waits with a row"},
	{Key: "waits", Title: "WAITS", Unit: report.UnitCount, About: "number of waits with a row"},
	{Key: "mean_ns", Title: "MEAN", Unit: report.UnitNs, About: "TOTAL / WAITS"},
	{Key: "longest_ns", Title: "LONGEST", Unit: report.UnitNs, About: "longest wait"},
	{
		Key: "wait_run_queue_ns", Title: "RUN QUEUE", Unit: report.UnitNs,
		About: "part of TOTAL in which the thread was runnable and waited for a processor",
	},
	{Key: "open", Title: "OPEN", Unit: report.UnitCount, About: "waits that had not ended when the recording ended"},
	{
		Key: "reason", Title: "REASON", Unit: report.UnitText,
		About: "why the thread waited: sleep, gil, lock, condition, import, pipe, network, file, page_fault, poll, " +
			"child, cuda, stopped, run_queue or throttled; unknown if the recorder could not tell",
	},
}

// reasonColumns are the columns of the table of reasons.
var reasonColumns = append(statisticColumns[:len(statisticColumns):len(statisticColumns)], report.Column{
	Key: "stack_pct", Title: "STACKS", Unit: report.UnitPercent, About: "share of TOTAL that has a stack",
}, report.Column{
	Key: "uninterruptible_pct", Title: "", Unit: report.UnitPercent,
	About: "share of TOTAL in waits that a signal does not end",
})

// waitColumns are the columns of the table of waits by reason and line.
var waitColumns = append(statisticColumns[:len(statisticColumns):len(statisticColumns)], []report.Column{
	{
		Key: "call", Title: "CALL", Unit: report.UnitText,
		About: "function of libcuda in which the thread waits, or else its system call",
	},
	{
		Key: "for", Title: "FOR", Unit: report.UnitText,
		About: "file, pipe or socket, or the thread that holds the lock, in the longest of the waits",
	},
	{
		Key: "site", Title: "LINE", Unit: report.UnitText,
		About: "innermost line of the program's own code. Waits without a stack have (no stack)",
	},
}...)

// lineColumns are the columns of the table of CPU time by line.
var lineColumns = []report.Column{
	{
		Key: "cpu_ns", Title: "CPU TIME", Unit: report.UnitNs,
		About: "estimated: sum of the time that the CPU samples represent",
	},
	{
		Key: "error_ns", Title: "± ERROR", Unit: report.UnitNs,
		About: "standard error of CPU TIME: root of the sum of squares of the time that each sample represents",
	},
	{Key: "cpu_pct", Title: "%", Unit: report.UnitPercent, About: "CPU TIME as a share of all samples"},
	{Key: "samples", Title: "SAMPLES", Unit: report.UnitCount, About: "number of CPU samples"},
	{Key: "function", Title: "FUNCTION", Unit: report.UnitText, About: "innermost function, of any code"},
	{
		Key: "site", Title: "LINE", Unit: report.UnitText,
		About: "innermost line of the program's own code",
	},
}

// collectionColumns are the columns of the table of garbage collections.
var collectionColumns = []report.Column{
	{Key: "gc_ns", Title: "TOTAL", Unit: report.UnitNs, About: "sum of the pauses in the window"},
	{
		Key: "uncertainty_ns", Title: "± ERROR", Unit: report.UnitNs,
		About: "largest error of TOTAL: both ends of a pause that is seen by reading the interpreter are uncertain " +
			"by the time between two readings. 0 if all pauses were measured by probes",
	},
	{Key: "pauses", Title: "PAUSES", Unit: report.UnitCount, About: "pauses that were seen"},
	{
		Key: "collections", Title: "COLLECTIONS", Unit: report.UnitCount,
		About: "collections of the generation that the interpreter counted. Short ones are not seen as pauses",
	},
	{Key: "mean_ns", Title: "MEAN", Unit: report.UnitNs, About: "TOTAL / PAUSES"},
	{Key: "longest_ns", Title: "LONGEST", Unit: report.UnitNs, About: "longest pause"},
	{
		Key: "generation", Title: "GENERATION", Unit: report.UnitText,
		About: "0 is the youngest generation, 2 has all objects; unknown if the recorder could not tell",
	},
	processColumn, pidColumn,
}

// interpreterColumns are the columns of the table of interpreters.
var interpreterColumns = []report.Column{
	{Key: "readings", Title: "READINGS", Unit: report.UnitCount, About: "readings of the interpreter's GIL and GC"},
	{
		Key: "gil_held_pct", Title: "GIL HELD", Unit: report.UnitPercent,
		About: "estimated: share of READINGS in which a listed thread held the GIL",
	},
	{
		Key: "collecting_pct", Title: "IN GC", Unit: report.UnitPercent,
		About: "estimated: share of READINGS in a garbage collection",
	},
	{
		Key: "error_pct", Title: "± ERROR", Unit: report.UnitPercent,
		About: "largest standard error of a share of READINGS: 50 / root of READINGS",
	},
	{
		Key: "holder", Title: "HOLDER", Unit: report.UnitText,
		About: "thread that held the GIL in the most readings",
	},
	{
		Key: "waiter", Title: "WAITER", Unit: report.UnitText,
		About: "thread that waited for the GIL in the most readings",
	},
	processColumn, pidColumn,
}

// limitColumns are the columns of the table of cgroups.
var limitColumns = []report.Column{
	{
		Key: "limit_cores", Title: "CPU LIMIT", Unit: report.UnitRatio,
		About: "CPU limit of the cgroup, in processors. Absent without a limit",
	},
	{
		Key: "throttled_pct", Title: "THROTTLED", Unit: report.UnitPercent,
		About: "share of the periods of the limit in which the cgroup used up its time",
	},
	{
		Key: "throttled_ns", Title: "FOR", Unit: report.UnitNs,
		About: "time for which the kernel throttled the cgroup; on several processors, their sum",
	},
	{Key: "periods", Title: "PERIODS", Unit: report.UnitCount, About: "periods in which a thread was runnable"},
	{Key: "throttled_periods", Title: "", Unit: report.UnitCount, About: "periods in which the cgroup was throttled"},
	{
		Key: "memory_pressure_ns", Title: "MEMORY PRESSURE", Unit: report.UnitNs,
		About: "time in which some thread of the cgroup waited for memory",
	},
	{Key: "cgroup", Title: "CGROUP", Unit: report.UnitText, About: "path of the cgroup"},
	processColumn, pidColumn,
}

// inputColumns are the columns of the table of input and output.
var inputColumns = []report.Column{
	{Key: "read_bytes", Title: "READ", Unit: report.UnitBytes, About: "bytes that the process read from disks"},
	{Key: "write_bytes", Title: "WRITTEN", Unit: report.UnitBytes, About: "bytes that the process wrote to disks"},
	{
		Key: "major_faults", Title: "MAJOR FAULTS", Unit: report.UnitCount,
		About: "page faults of the listed threads that waited for a disk",
	},
	processColumn, pidColumn,
}

// pressureColumns are the columns of the table of the machine's pressure.
var pressureColumns = []report.Column{
	{
		Key: "pressure_ns", Title: "TIME", Unit: report.UnitNs,
		About: "time in which some thread of the machine waited for the resource",
	},
	{
		Key:   "pressure_pct",
		Title: "%",
		Unit:  report.UnitPercent,
		About: "TIME as a share of the time between its samples",
	},
	{Key: "resource", Title: "RESOURCE", Unit: report.UnitText, About: "cpu, io or memory"},
}

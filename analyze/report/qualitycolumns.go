package report

// Facts that exist only if their number is not 0.
var (
	withoutTableColumn = Column{
		Key:   "stacks_without_table",
		Title: "stacks without unwind table",
		Unit:  UnitCount,
		About: "calls whose stack " +
			"is cut or missing, because the unwind tables of the process were not loaded yet",
	}
	missedColumn = Column{
		Key:   "missed_events",
		Title: "missed at the beginning",
		Unit:  UnitCount,
		About: "calls and allocator events before " +
			"the first recorded one, which the program's own counters show",
	}
	lateColumn = Column{
		Key:   "late_processes",
		Title: "processes seen late",
		Unit:  UnitCount,
		About: "processes that called CUDA before they " +
			"were probed; the number of these calls is unknown",
	}
	completeAfterColumn = Column{
		Key:   "complete_after_ns",
		Title: "",
		Unit:  UnitNs,
		About: "time from the start of the recording after " +
			"which all calls of all processes are recorded",
	}
)

// QualityColumns are the facts of the quality block of every report.
var QualityColumns = []Column{
	{Key: "events", Title: "events", Unit: UnitCount, About: "calls in the recording"},
	{
		Key:   "lost_events",
		Title: "lost",
		Unit:  UnitCount,
		About: "calls that the program made but that are missing in the recording",
	},
	{
		Key:   "lost_memory_events",
		Title: "lost memory calls",
		Unit:  UnitCount,
		About: "lost calls that allocate or free memory; each may make " +
			"the live memory wrong",
	},
	{
		Key:   "unmatched_frees",
		Title: "unmatched frees",
		Unit:  UnitCount,
		About: "frees of memory whose allocation is not in the recording: " +
			"it was allocated before the recording, or its allocation was lost",
	},
	{
		Key:   "lost_frees",
		Title: "lost frees",
		Unit:  UnitCount,
		About: "allocations that returned an address which was still live: the free " +
			"of the earlier block was not recorded",
	},
	{Key: "open_calls", Title: "open", Unit: UnitCount, About: "calls that had not returned when the recording ended"},
	{
		Key:   "abandoned_calls",
		Title: "abandoned",
		Unit:  UnitCount,
		About: "calls without a recorded return, although their thread made later " +
			"calls",
	},
	{
		Key:   "unknown_allocs",
		Title: "unknown allocs",
		Unit:  UnitCount,
		About: "allocations whose address is unknown: the call is open, " +
			"abandoned or unreadable. Live bytes do not include them",
	},
	{
		Key:   "truncated_tail",
		Title: "cut off",
		Unit:  UnitRatio,
		About: "true if the recorder did not finish the recording: the last events " +
			"may be missing",
	},
	{
		Key:   "damaged_segments",
		Title: "damaged segments",
		Unit:  UnitCount,
		About: "segments of the recording that could not be read and were " +
			"skipped",
	},
	{
		Key:   "unsymbolized_frames_pct",
		Title: "frames without name",
		Unit:  UnitPercent,
		About: "share of stored stack frames without a " +
			"function name",
	},
	{
		Key:   "allocator_events",
		Title: "allocator events",
		Unit:  UnitCount,
		About: "recorded events of caching allocators such as PyTorch's; " +
			"the other counts here exclude them",
	},
	{
		Key:   "lost_allocator_events",
		Title: "lost allocator events",
		Unit:  UnitCount,
		About: "lost events of caching allocators; each may make " +
			"the live blocks wrong",
	},
	{
		Key:   "allocator_unmatched_frees",
		Title: "",
		Unit:  UnitCount,
		About: "frees of allocator blocks whose allocation is not in the " +
			"recording: they were allocated before the recording, or the allocation was lost",
	},
	{
		Key:   "allocator_lost_frees",
		Title: "lost allocator frees",
		Unit:  UnitCount,
		About: "allocator blocks and segments that must have been " +
			"freed without a recorded free",
	},
	{
		Key:   "allocator_compared",
		Title: "",
		Unit:  UnitCount,
		About: "events at which the model of the caching allocator was compared with the " +
			"allocator's own statistics",
	},
	{
		Key:   "allocator_disagreed",
		Title: "allocator disagreements",
		Unit:  UnitCount,
		About: "events at which the model and the allocator's " +
			"own statistics had different allocated or reserved bytes; the model then takes the allocator's values",
	},
	{
		Key:   "allocator_worst_bytes",
		Title: "",
		Unit:  UnitBytes,
		About: "largest difference between the model of the caching allocator and the " +
			"allocator's own statistics",
	},
	{
		Key:   "stacks_complete_pct",
		Title: "",
		Unit:  UnitPercent,
		About: "share of calls whose stack was unwound to the start of the thread. " +
			"Nested calls do not count: they have the stack of the outer call. Absent if no call can have a stack",
	},
	{
		Key:   "stacks_inferred_pct",
		Title: "",
		Unit:  UnitPercent,
		About: "share of calls whose stack was taken from an earlier call with the " +
			"same fingerprint",
	},
	{
		Key:   "stacks_truncated_pct",
		Title: "",
		Unit:  UnitPercent,
		About: "share of calls whose stack ends too early; gpurec analyze stacks " +
			"gives the reasons",
	},
	{
		Key:   "stacks_frame_pointer_pct",
		Title: "",
		Unit:  UnitPercent,
		About: "share of calls whose stack was walked by frame pointers: frames " +
			"may be missing",
	},
	{Key: "stacks_none_pct", Title: "", Unit: UnitPercent, About: "share of calls without a stack"},
	{
		Key:   "stacks_checked",
		Title: "",
		Unit:  UnitCount,
		About: "calls that were unwound to check the stack that would have been inferred",
	},
	{
		Key:   "stacks_wrong",
		Title: "",
		Unit:  UnitCount,
		About: "checked calls whose real stack differs from the inferred one",
	},
	{
		Key:   "stacks_wrong_pct",
		Title: "",
		Unit:  UnitPercent,
		About: "estimated share of inferred stacks that are wrong, from the checked " +
			"calls; absent if no call was checked",
	},
}

// rationedStacksColumn exists only for recordings in which unwinding was rationed.
var rationedStacksColumn = Column{
	Key: "stacks_rationed_pct", Title: "", Unit: UnitPercent,
	About: "share of calls without a stack because unwinding would have exceeded --max-overhead",
}

// droppedEventsColumn exists only for recordings of the ring recorder (--ring).
var droppedEventsColumn = Column{
	Key: "dropped_events", Title: "older dropped by the ring", Unit: UnitCount,
	About: "calls older than the retained " +
		"window, which the ring recorder discarded: memory allocated by them is unknown",
}

// allocatorReportsColumn exists only if an allocator is known only from its memory reports.
var allocatorReportsColumn = Column{
	Key: "allocators_by_reports", Title: "processes with allocators known by reports only", Unit: UnitCount,
	About: "processes whose PyTorch allocator is known only from its memory reports to profilers: " +
		reportedAllocatorLimits,
}

// recordedClassesColumn exists only if the recording leaves out classes of calls.
var recordedClassesColumn = Column{
	Key: "recorded_classes", Title: "classes recorded", Unit: UnitText,
	About: "recorded classes of calls (--record), " +
		"separated by spaces; absent if all classes were recorded",
}

package report

// AllocatorSamplingColumns are the facts of the quality block of a recording that has the events of caching allocators
// for part of the time.
var AllocatorSamplingColumns = []Column{
	{
		Key:   "allocator_events_recorded_ns",
		Title: "",
		Unit:  UnitNs,
		About: "time of the recording in which the events of caching allocators were recorded. This value and the " +
			"next six exist only if --max-overhead made the recorder skip such events. Calls of the driver are " +
			"always recorded",
	},
	{
		Key: "allocations_recorded", Title: "", Unit: UnitCount,
		About: "allocations of blocks in the recording. Absent, like the next five, in reports that do not replay " +
			"allocators",
	},
	{
		Key: "allocations_happened", Title: "", Unit: UnitCount,
		About: "allocations of blocks by the allocators' own counters",
	},
	{Key: "frees_recorded", Title: "", Unit: UnitCount, About: "frees of blocks in the recording"},
	{
		Key: "frees_happened", Title: "", Unit: UnitCount,
		About: "frees of blocks by the allocators' own counters",
	},
	{
		Key: "allocator_events_not_seen", Title: "", Unit: UnitCount,
		About: "allocations and frees that happened, and that are neither recorded nor lost",
	},
	{
		Key:   "blocks_site_not_seen",
		Title: "",
		Unit:  UnitCount,
		About: "blocks that a reading or a free showed, and whose allocation was not recorded. Their site is (site " +
			"not seen), and their age is at least the time since they were first seen",
	},
}

// allocatorSamplingFacts returns the facts of a recording with sampled allocator events. It returns nil for other
// recordings.
func (q *Quality) allocatorSamplingFacts() []Fact {
	c := &q.Allocator
	if !c.Sampled {
		return nil
	}
	v := Values{
		"allocator_events_recorded_ns": c.RecordedNs, "allocations_recorded": nil, "allocations_happened": nil,
		"frees_recorded": nil, "frees_happened": nil, "allocator_events_not_seen": nil, "blocks_site_not_seen": nil,
	}
	if c.Allocs.Happened()+c.Frees.Happened() > 0 {
		v["allocations_recorded"], v["allocations_happened"] = c.Allocs.Recorded, c.Allocs.Happened()
		v["frees_recorded"], v["frees_happened"] = c.Frees.Recorded, c.Frees.Happened()
		v["allocator_events_not_seen"] = c.NotSeen(q.LostAllocatorEvents)
		v["blocks_site_not_seen"] = c.SiteNotSeen
	}
	facts := NewFacts(AllocatorSamplingColumns, v)
	if !q.Launches.Sampled {
		facts = append(facts, NewFacts(LaunchSamplingColumns[2:], Values{
			"max_overhead_pct": c.MaxPct, "overhead_seen_pct": c.OverheadPct,
		})...)
	}
	return facts
}

package sql

import "github.com/gpurec/gpurec/analyze/report"

var allocationColumns = []report.Column{
	recordingColumn, pidColumn, tidColumn, deviceColumn, contextColumn, streamColumn,
	column("name", report.UnitText, "Function that allocated the memory."),
	column("memory_kind", report.UnitText, "Kind of memory, such as device, async, host or physical."),
	ptrColumn,
	column("bytes", report.UnitBytes, "Requested size."),
	timeColumn,
	column("start_ns", report.UnitTime, "Entry of the call that allocated the memory, Unix ns."),
	column("alloc_ns", report.UnitTime, "Return of the call: the memory exists from then on, Unix ns."),
	column("free_ns", report.UnitTime, "End of the memory, Unix ns. NULL: it lives at the end of the recording."),
	column("lifetime_ns", report.UnitNs, "free_ns - alloc_ns. NULL: it lives at the end of the recording."),
	column("end_by", report.UnitText, "free; reuse: a free was not recorded; exit: of the process. NULL: none."),
	column("free_name", report.UnitText, "Function that freed the memory."),
	column("free_site", report.UnitText, "Call site of the free."),
	stackIDColumn, stackStatusColumn, siteColumn,
}

// An allocation takes effect at its return, a free at its entry. An allocation inside of another one of
// the thread, with the same address, is the same memory. The end of memory is the next call about the
// address, or the exit of the process. Physical memory has uses: its handles and its mappings. It ends
// with the last one.
const allocationQuery = `with events as (
	select recording, pid, tid, nullif(device, -1) as device, context, stream, name, memory_kind, ptr, bytes, start_ns,
		kind, case memory_kind when 'array' then 'array' when 'physical' then 'physical' else '' end as space,
		case kind when 'alloc' then start_ns + greatest(dur_ns, 0) else start_ns end as at_ns, $STACK
	from recording_rows r $ALIASES
	where class = 'memory' and kind in ('alloc', 'free') and (flags & 19) = 0 and result = 0 and ptr <> 0
		and memory_kind not in ('ipc', 'external')
), distinct_events as (
	select * from events
	window w as (partition by recording, pid, space, ptr order by at_ns, kind = 'alloc', start_ns desc)
	qualify not coalesce(kind = 'alloc' and lag(kind) over w = 'alloc' and lag(tid) over w = tid
		and lag(at_ns) over w >= start_ns, false)
), mappings as (
	select recording, pid, kind, ptr, src_ptr, bytes, start_ns as at_ns
	from recording_rows
	where class = 'memory' and kind in ('map', 'unmap', 'retain') and (flags & 19) = 0 and result = 0
), uses as (
	select recording, pid, ptr, at_ns, kind = 'alloc' as is_new, case kind when 'alloc' then 1 else -1 end as change
	from distinct_events where space = 'physical'
	union all
	select recording, pid, ptr, at_ns, false, 1 from mappings where kind = 'retain'
	union all
	select recording, pid, src_ptr, at_ns, false, 1 from mappings where kind = 'map'
	union all
	select m.recording, m.pid, any_value(m.src_ptr), min(u.at_ns), false, -1
	from mappings m join mappings u on u.kind = 'unmap' and u.recording = m.recording and u.pid = m.pid
		and u.at_ns >= m.at_ns and u.ptr <= m.ptr and u.ptr + u.bytes > m.ptr
	where m.kind = 'map' group by m.recording, m.pid, m.ptr, m.at_ns
), numbered_uses as (
	select *, count(*) filter (is_new) over (partition by recording, pid, ptr order by at_ns, change > 0, not is_new
		rows unbounded preceding) as life
	from uses
), used as (
	select *, sum(change) over (partition by recording, pid, ptr, life order by at_ns, change > 0, not is_new
		rows unbounded preceding) as users
	from numbered_uses where life > 0
), unused as (
	select recording, pid, ptr, max(at_ns) filter (is_new) as at_ns, min(at_ns) filter (users <= 0) as unused_ns
	from used group by recording, pid, ptr, life
), lives as (
	select *, lead(kind) over w as next_kind, lead(at_ns) over w as next_ns, lead(name) over w as next_name,
		lead(site) over w as next_site
	from distinct_events where space <> 'physical' or kind = 'alloc'
	window w as (partition by recording, pid, space, ptr order by at_ns, kind = 'alloc', start_ns desc)
), ends as (
	select l.* replace (
			case when unused_ns is not null then 'free' else next_kind end as next_kind,
			case when unused_ns is not null then unused_ns else next_ns end as next_ns
		), p.exit_ns as process_exit_ns
	from lives l
	left join processes p on p.recording = l.recording and p.pid = l.pid
	left join unused u on l.space = 'physical' and u.recording = l.recording and u.pid = l.pid and u.ptr = l.ptr
		and u.at_ns = l.at_ns
	where l.kind = 'alloc'
), exits as (
	select *, case when process_exit_ns >= at_ns and (next_ns is null or next_ns > process_exit_ns)
		then process_exit_ns end as exit_ns
	from ends
)
select recording, pid, tid, device, context, stream, name, memory_kind, ptr, bytes,
	make_timestamp_ns(start_ns) as "time", start_ns, at_ns as alloc_ns, coalesce(exit_ns, next_ns) as free_ns,
	coalesce(exit_ns, next_ns) - at_ns as lifetime_ns,
	case when exit_ns is not null then 'exit' when next_kind = 'alloc' then 'reuse' else next_kind end as end_by,
	case when exit_ns is null and next_kind = 'free' then next_name end as free_name,
	case when exit_ns is null and next_kind = 'free' then next_site end as free_site,
	stack_id, stack_status, site
from exits`

var blockColumns = []report.Column{
	recordingColumn, pidColumn, tidColumn, deviceColumn, streamColumn,
	column("pool", report.UnitID, "Private pool of PyTorch's allocator. 0: none."),
	ptrColumn,
	column("bytes", report.UnitBytes, "Requested size; with the source reportMemoryUsageToProfiler that of the block."),
	timeColumn,
	column("start_ns", report.UnitTime, "Time of the allocation, Unix ns."),
	column("free_ns", report.UnitTime, "When the program freed the block, Unix ns. NULL: it had not."),
	column("lifetime_ns", report.UnitNs, "free_ns - start_ns. NULL: the program had not freed it."),
	stackIDColumn, stackStatusColumn, siteColumn,
}

const blockQuery = `with events as (
	select recording, pid, tid, nullif(device, -1) as device, stream, src_ptr as pool, ptr, bytes, start_ns,
		name in ('alloc', 'reported_alloc') as is_alloc, $STACK
	from recording_rows r $ALIASES where class = 'allocator'
		and name in ('alloc', 'reported_alloc', 'free_requested', 'reported_free')
), lives as (
	select *, lead(start_ns) over (partition by recording, pid, device, ptr order by start_ns, is_alloc) as free_ns
	from events
)
select recording, pid, tid, device, stream, pool, ptr, bytes, make_timestamp_ns(start_ns) as "time", start_ns, free_ns,
	free_ns - start_ns as lifetime_ns, stack_id, stack_status, site
from lives where is_alloc`

-- Launches by source line
with lines as (
	select recording, stack_id, min_by("function" || ' (' || file || ':' || line || ')', depth) as line
	from stacks where line is not null group by all
)
select coalesce(l.line, c.site) as line, count(*) as launches, sum(dur_ns) / 1e6 as host_ms
from launches c left join lines l using (recording, stack_id)
group by 1 order by 2 desc, 1 limit 20;

-- Live memory at the end, by call site
select site, memory_kind, count(*) as blocks, sum(bytes) as live_bytes
from allocations where free_ns is null
group by all order by live_bytes desc, site;

-- Lifetimes of memory by call site
select site, count(*) as allocations, median(lifetime_ns) / 1e6 as median_ms,
	max(bytes) as largest_bytes
from allocations where lifetime_ns is not null
group by site order by allocations desc, site limit 20;

-- Failed calls by function and error code
select name, result, count(*) as calls, min("time") as first
from calls where result <> 0
group by name, result order by calls desc, name;

-- Copied bytes by direction and minute
select date_trunc('minute', "time") as minute,
	copy_kind, count(*) as copies, sum(bytes) as copied_bytes
from calls where kind = 'memcpy' and not is_captured
group by all order by minute, copied_bytes desc;

-- Time in calls by function
select name, count(*) as calls, sum(dur_ns) / 1e6 as total_ms,
	quantile_cont(dur_ns, 0.99) / 1e3 as p99_us
from calls where dur_ns is not null and parent_start_ns is null
group by name order by total_ms desc, name limit 20;

-- Collectives by communicator
select communicator, size, name, count(*) as operations, sum(bytes) as total_bytes,
	max(sequence) as last_sequence
from collectives group by all order by operations desc, communicator, name;

-- Steps that took more than twice the median
with complete as (
	select *, median(dur_ns) over (partition by recording, pid) as median_ns from steps where not is_cut
)
select recording, pid, step, "time", dur_ns / 1e6 as ms, median_ns / 1e6 as median_ms
from complete where dur_ns > 2 * median_ns order by dur_ns desc, recording, pid, step limit 20;

-- Peak of every metric by GPU
select gpu, metric, max(value) as peak, max_by("time", value) as peak_time
from samples where kind = 'nvml' and pid is null
group by all order by gpu, metric;

-- Mean time of operations by channel of the GPU
select pid, gpu, channel, sum(operations) as operations,
	sum(gpu_end_ns - gpu_start_ns) / sum(operations) / 1e3 as mean_us
from operations group by all order by operations desc, pid, channel;

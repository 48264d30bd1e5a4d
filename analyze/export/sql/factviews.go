package sql

import "github.com/gpurec/gpurec/analyze/report"

var recordingColumns = []report.Column{
	recordingColumn,
	column("host", report.UnitText, "Host name."),
	column("complete", report.UnitText, "true: finished; recovered: merged after a crash; false: unfinished."),
	timeColumn,
	column("start_ns", report.UnitTime, "Start of the recording, Unix ns."),
	column("end_ns", report.UnitTime, "End of the recording, Unix ns."),
	column("seen_calls", report.UnitCount, "Calls that the probes saw: recorded, lost and dropped ones."),
	column("recorded_calls", report.UnitCount, "Calls in the recording."),
	column("lost_calls", report.UnitCount, "Calls that were seen but could not be written."),
	column("dropped_calls", report.UnitCount, "Calls that a ring removed."),
}

var processColumns = []report.Column{
	recordingColumn, pidColumn,
	column("name", report.UnitText, "Name of the process."),
	column("parent_pid", report.UnitID, "Process that started it."),
	column("exe", report.UnitText, "Path of the program."),
	column("command_line", report.UnitText, "Arguments, joined by spaces."),
	column("rank", report.UnitID, "Rank in the job. NULL: unknown."),
	column("world_size", report.UnitCount, "Number of ranks of the job. NULL: unknown."),
	column("local_rank", report.UnitID, "Rank on the node. NULL: unknown."),
	column("node", report.UnitText, "Node, as its scheduler names it."),
	column("job", report.UnitText, "Job of the launcher or scheduler."),
	column("pod", report.UnitText, "Kubernetes pod."),
	column("container_id", report.UnitText, "Container."),
	column("start_ns", report.UnitTime, "Time of the latest row of the process, Unix ns."),
	column("exit_ns", report.UnitTime, "When the recorder noticed the exit, Unix ns. NULL: it had not ended."),
}

// A message that is no JSON counts as empty: messages come from files that anyone can write.
const processQuery = `select recording, pid, name,
	try_cast(json_extract_string(fact, '$.parent_pid') as integer) as parent_pid,
	json_extract_string(fact, '$.exe') as exe,
	array_to_string(json_extract_string(fact, '$.command_line[*]'), ' ') as command_line,
	try_cast(json_extract_string(fact, '$.identity.rank') as integer) as rank,
	try_cast(json_extract_string(fact, '$.identity.world_size') as integer) as world_size,
	try_cast(json_extract_string(fact, '$.identity.local_rank') as integer) as local_rank,
	json_extract_string(fact, '$.identity.node') as node,
	json_extract_string(fact, '$.identity.job') as job,
	json_extract_string(fact, '$.identity.pod') as pod,
	json_extract_string(fact, '$.container_id') as container_id,
	start_ns, exit_ns
from (
	select recording, pid, start_ns, fact, last_value(nullif(name, '') ignore nulls) over w as name,
		max(try_cast(json_extract_string(fact, '$.exit_ns') as bigint)) over w as exit_ns,
		row_number() over (partition by recording, pid order by number desc) as n
	from (
		select recording, pid, name, start_ns, row_number() over (partition by recording, pid order by start_ns,
			json_exists(fact, '$.exit_ns')) as number, fact
		from (
			select recording, pid, name, start_ns, case when json_valid(message) then message end as fact
			from recording_rows where class = 'fact' and kind = 'process'
		)
	)
	window w as (partition by recording, pid order by number)
) where n = 1`

var deviceColumns = []report.Column{
	recordingColumn, gpuColumn,
	column("name", report.UnitText, "Name of the GPU."),
	column("memory_bytes", report.UnitBytes, "Memory of the GPU."),
	column("uuid", report.UnitText, "UUID, as NVML reports it."),
	column("pci", report.UnitText, "PCI address."),
	column("compute_capability", report.UnitText, "Compute capability, as major.minor."),
}

const deviceQuery = `select recording, device as gpu, name, bytes as memory_bytes,
	json_extract_string(fact, '$.uuid') as uuid,
	json_extract_string(fact, '$.pci') as pci,
	json_extract_string(fact, '$.compute_capability') as compute_capability
from (
	select recording, device, name, bytes, start_ns, case when json_valid(message) then message end as fact
	from recording_rows where class = 'fact' and kind = 'device'
) qualify row_number() over (partition by recording, device order by start_ns desc) = 1`

var noteColumns = []report.Column{
	recordingColumn,
	column("kind", report.UnitText, "note: a remark of the recorder; lost: calls that were not written."),
	timeColumn, startColumn,
	column("dur_ns", report.UnitNs, "Length of the interval. 0: a moment."),
	pidColumn,
	column("name", report.UnitText, "Subject of the note, or class of the lost calls."),
	column("value", report.UnitRatio, "Number of the note, or of the lost calls."),
	column("message", report.UnitText, "Text or JSON."),
}

const noteQuery = `select recording, kind, make_timestamp_ns(start_ns) as "time", start_ns, dur_ns, pid, name,
	value, message
from recording_rows where class = 'fact' and kind in ('note', 'lost')`

var xidColumns = []report.Column{
	recordingColumn, timeColumn, startColumn, gpuColumn,
	column("pid", report.UnitID, "Process. NULL: unknown."),
	column("name", report.UnitText, "xid: an error of a GPU; sxid: of an NVSwitch."),
	column("code", report.UnitID, "Error code."),
	column("text", report.UnitText, "Text that the driver printed."),
}

const xidQuery = `select recording, make_timestamp_ns(start_ns) as "time", start_ns, nullif(device, -1) as gpu,
	nullif(pid, 0) as pid, name, try_cast(value as bigint) as code,
	case when json_valid(message) then json_extract_string(message, '$.text') else message end as "text"
from recording_rows where class = 'sample' and kind = 'xid'`

var sampleColumns = []report.Column{
	recordingColumn,
	column("kind", report.UnitText, "nvml: of a GPU; host: of a thread, process, cgroup or the machine."),
	timeColumn, startColumn,
	column("metric", report.UnitText, "Name of the metric with its unit, as in FORMAT.md."),
	column("value", report.UnitRatio, "Measured value. Metrics of kind host are counters."),
	gpuColumn,
	column("pid", report.UnitID, "Process. NULL: the whole GPU, or the machine."),
	column("tid", report.UnitID, "Thread. NULL: the whole process."),
	column("subject", report.UnitText, "Path of the cgroup, or name of a process that is not recorded."),
}

const sampleQuery = `select recording, kind, make_timestamp_ns(start_ns) as "time", start_ns, name as metric, value,
	case when kind = 'nvml' then nullif(device, -1) end as gpu, nullif(pid, 0) as pid, nullif(tid, 0) as tid,
	nullif(message, '') as subject
from recording_rows where class in ('sample', 'host') and kind in ('nvml', 'host')`

var stackColumns = []report.Column{
	recordingColumn,
	column("stack_id", report.UnitID, "Number of the stack."),
	column("stack_status", report.UnitText, "How the stack was recorded."),
	column("depth", report.UnitCount, "0: the frame of the called CUDA function; larger: its callers."),
	column("function", report.UnitText, "Demangled function name. Empty: unknown."),
	column("file", report.UnitText, "Source file. Empty: unknown."),
	column("line", report.UnitID, "Source line. NULL: unknown."),
	column("module", report.UnitText, "Path of the ELF file."),
	column("type", report.UnitText, "native, python, jit or kernel."),
}

const stackQuery = `select recording, stack_id, stack_status, depth, f.func as "function", f.file as file,
	nullif(f.line, 0) as line, f.module as module, f.type as type
from (
	select recording, stack_id, stack_status, unnest(frames) as f, generate_subscripts(frames, 1)::integer - 1 as depth
	from recording_rows where class = 'stack' and kind = 'stack'
)`

package sql

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
)

var callColumns = []report.Column{
	recordingColumn,
	column("kind", report.UnitText, "Kind of the call, such as launch, memcpy, alloc or sync."),
	column("name", report.UnitText, "Function of the CUDA driver."),
	timeColumn, startColumn, durationColumn, pidColumn, tidColumn,
	column("cpu", report.UnitID, "CPU on which the call returned."),
	deviceColumn, contextColumn, streamColumn, resultColumn,
	column("is_open", report.UnitText, "The call had not returned at the end of the recording."),
	isCapturedColumn,
	column("parent_start_ns", report.UnitTime, "start_ns of the enclosing call of the thread. NULL: none."),
	column("memory_kind", report.UnitText, "Kind of memory of allocations and frees."),
	ptrColumn, bytesColumn,
	column("src_ptr", report.UnitID, "Source address, or second handle."),
	column("copy_kind", report.UnitText, "HtoD, DtoH, DtoD, …: kind of a copy."),
	column("kernel", report.UnitText, "Demangled kernel name. Empty: unknown, or no kernel."),
	column("value", report.UnitRatio, "A number: see Value in FORMAT.md."),
	stackIDColumn, stackStatusColumn, siteColumn,
}

// Flags 1, 2 and 32: the call did not return, or its return was not recorded. A call that was left by
// an exception, or whose return was not recorded, has no duration.
const callQuery = `select recording, kind, name, make_timestamp_ns(start_ns) as "time", start_ns,
	case when (flags & 34) = 0 then dur_ns end as dur_ns, pid, tid, cpu, nullif(device, -1) as device,
	context, stream, case when (flags & 35) = 0 then result end as result, (flags & 1) <> 0 as is_open,
	(flags & 16) <> 0 as is_captured, nullif(parent_start_ns, 0) as parent_start_ns, memory_kind, ptr, bytes,
	src_ptr, copy_kind, kernel, value, $STACK
from recording_rows r $ALIASES where class in ('memory', 'call')`

var launchColumns = []report.Column{
	recordingColumn,
	column("name", report.UnitText, "Function of the CUDA driver."),
	timeColumn, startColumn, durationColumn, pidColumn, tidColumn, deviceColumn, contextColumn, streamColumn,
	resultColumn, isCapturedColumn,
	column("is_graph", report.UnitText, "The call launches a graph."),
	column("graph", report.UnitID, "Handle of the graph. NULL: no graph."),
	column("kernel", report.UnitText, "Demangled kernel name. Empty: unknown, or a graph."),
	column("kernels", report.UnitCount, "Kernels of the launch. NULL: a graph whose contents are unknown."),
	column("blocks", report.UnitCount, "Blocks of the grid."),
	column("threads", report.UnitCount, "Threads of a block. 0: unknown."),
	column("shared_bytes", report.UnitBytes, "Dynamic shared memory of a block."),
	stackIDColumn, stackStatusColumn, siteColumn,
}

const launchQuery = `select recording, name, make_timestamp_ns(start_ns) as "time", start_ns,
	case when (flags & 34) = 0 then dur_ns end as dur_ns, pid, tid, nullif(device, -1) as device, context, stream,
	case when (flags & 35) = 0 then result end as result, (flags & 16) <> 0 as is_captured,
	name like 'cuGraphLaunch%' as is_graph, case when name like 'cuGraphLaunch%' then ptr end as graph, kernel,
	case when name like 'cuGraphLaunch%' or name like 'cuLaunchCooperativeKernelMultiDevice%'
		then nullif(try_cast(value as bigint), 0) else 1 end as kernels,
	grid_x::hugeint * grid_y * grid_z as blocks, block_x::hugeint * block_y * block_z as threads,
	shared_bytes, $STACK
from recording_rows r $ALIASES where class = 'call' and kind = 'launch'`

var kernelArgColumns = []report.Column{
	recordingColumn,
	column("name", report.UnitText, "Function of the launch."),
	timeColumn,
	column(
		"start_ns",
		report.UnitTime,
		"Start of the launch, Unix ns: join launches by recording, pid, tid, start_ns.",
	),
	pidColumn,
	tidColumn,
	contextColumn,
	streamColumn,
	column("function", report.UnitID, "Kernel handle."),
	column("kernel", report.UnitText, "Demangled kernel name. Empty: unknown."),
	column("layout", report.UnitText, "How the parameters are known: calls, module or unknown."),
	column("parameters", report.UnitCount, "Number of values."),
	bytesColumn,
	column("parameter_values", report.UnitText, "JSON array of the values: offset, and the bytes as hex."),
	column("missing", report.UnitText, "Why values are missing. NULL: they are complete, if the layout is known."),
}

const kernelArgQuery = `select recording, name, make_timestamp_ns(start_ns) as "time", start_ns, pid, tid, context,
	stream, function, kernel, message::json->>'layout' as layout, try_cast(value as bigint) as parameters, bytes,
	message::json->'values' as parameter_values, message::json->>'missing' as missing
from recording_rows where class = 'arguments' and kind = 'kernel_args'`

var collectiveColumns = []report.Column{
	recordingColumn,
	column("name", report.UnitText, "Function, such as ncclAllReduce."),
	timeColumn,
	startColumn,
	column("dur_ns", report.UnitNs, "Time of the call on the CPU. NULL: unknown."),
	pidColumn,
	tidColumn,
	column("communicator", report.UnitText, "Identity of the communicator, hexadecimal. NULL: unknown."),
	column("rank", report.UnitID, "Rank in the communicator. NULL: unknown."),
	column("size", report.UnitCount, "Ranks of the communicator. NULL: unknown."),
	column(
		"sequence",
		report.UnitID,
		"Number of the collective on its communicator, without earlier ones than the recording. NULL: none.",
	),
	column("group_number", report.UnitID, "Number of the group of the thread. NULL: no group, -1: unknown."),
	column("elements", report.UnitCount, "Elements in the argument count."),
	bytesColumn,
	column("data_type", report.UnitText, "Type of the elements."),
	column("reduction", report.UnitText, "sum, prod, max, min, avg or custom. Empty: none."),
	column("root", report.UnitID, "Root, or the peer of Send and Recv. NULL: none."),
	streamColumn,
	column("result", report.UnitID, "ncclResult_t; 0 is success. NULL: unknown."),
	stackIDColumn,
	stackStatusColumn,
	siteColumn,
}

const collectiveQuery = `select recording, name, make_timestamp_ns(start_ns) as "time", start_ns,
	case when (flags & 34) = 0 then dur_ns end as dur_ns, pid, tid,
	case when communicator <> 0 then '0x' || ltrim(printf('%016x', communicator), '0') end as communicator,
	case when communicator_size > 0 then communicator_rank end as rank, nullif(communicator_size, 0) as size,
	nullif(sequence, 0) as sequence, nullif(group_number, 0) as group_number, try_cast(value as bigint) as elements,
	bytes, data_type, reduction, nullif(root, -1) as root, stream,
	case when (flags & 35) = 0 then result end as result, $STACK
from recording_rows r $ALIASES where class = 'collective' and kind = 'collective'`

var operationColumns = []report.Column{
	recordingColumn,
	pidColumn,
	column("channel", report.UnitID, "Channel of the GPU, from 1 on in each recording."),
	gpuColumn,
	timeColumn,
	column("start_ns", report.UnitTime, "Time of the later sample, Unix ns on the clock of the file."),
	column("last_operation", report.UnitID, "Counter of the later sample: operations of the channel that have begun."),
	column("operations", report.UnitCount, "Operations that began between the two samples."),
	column(
		"gpu_start_ns",
		report.UnitTime,
		"Start of the last operation of the earlier sample, ns on the GPU's clock.",
	),
	column("gpu_end_ns", report.UnitTime, "Start of the last operation of the later sample, ns on the GPU's clock."),
	column("mean_ns", report.UnitNs, "Mean time between two starts: gpu_end_ns - gpu_start_ns by operations. "+
		"It has idle times, too."),
}

const operationQuery = `with samples as (
	select recording, pid, channel, start_ns, counter, gpu_time_ns, lag(counter) over w as counter_before,
		lag(gpu_time_ns) over w as gpu_time_before
	from recording_rows where class = 'progress'
	window w as (partition by recording, pid, channel order by start_ns, counter)
), channels as (
	select recording, channel, max(device) as gpu
	from recording_rows where class = 'fact' and kind = 'channel' group by all
)
select s.recording, s.pid, s.channel, nullif(c.gpu, -1) as gpu, make_timestamp_ns(s.start_ns) as "time", s.start_ns,
	s.counter as last_operation, s.counter - s.counter_before as operations, s.gpu_time_before as gpu_start_ns,
	s.gpu_time_ns as gpu_end_ns,
	(s.gpu_time_ns::hugeint - s.gpu_time_before)::double / (s.counter - s.counter_before) as mean_ns
from samples s left join channels c on c.recording = s.recording and c.channel = s.channel
where s.counter > s.counter_before`

// workColumns are the columns of the view works: those of operations, two of them with their former names.
var workColumns = renameColumns(
	operationColumns,
	map[string]string{"last_operation": "last_work", "operations": "works"},
)

const workQuery = `select recording, pid, channel, gpu, "time", start_ns, last_operation as last_work,
	operations as works, gpu_start_ns, gpu_end_ns, mean_ns
from operations`

// renameColumns returns a copy of columns with new keys, by old key.
func renameColumns(columns []report.Column, keys map[string]string) []report.Column {
	renamed := slices.Clone(columns)
	for i := range renamed {
		renamed[i].Key = cmp.Or(keys[renamed[i].Key], renamed[i].Key)
	}
	return renamed
}

var stepColumns = []report.Column{
	recordingColumn, pidColumn,
	column("step", report.UnitID, "Number of the step in its process, from 1 on."),
	timeColumn,
	column("start_ns", report.UnitTime, "Return of the last call of the step before, Unix ns."),
	column("end_ns", report.UnitTime, "Return of the last call of the step, Unix ns."),
	column("dur_ns", report.UnitNs, "Duration of the step."),
	column("operations", report.UnitCount, "Recorded launches, copies and fills of the step."),
	column("is_cut", report.UnitText, "A part of the step is missing, so its duration has no meaning."),
	column("works", report.UnitCount, "Former name of operations."),
}

package perfetto

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/rankjob"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// collectivesQuery selects the slices of operations of NCCL.
const collectivesQuery = `with op as (select s.*, t.name track, p.pid pid from slice s
	join process_track t on s.track_id = t.id join process p using (upid) where s.category = 'collective') `

// TestPerfettoReadsCollectives compares the operations of a job with those that trace_processor reads: tracks,
// arguments, and a flow through all ranks that ends at the late one.
func TestPerfettoReadsCollectives(t *testing.T) {
	testclass.Browser(t)
	recording := rankjob.Spec{
		Seed: 1, Ranks: 4, Steps: 60,
		Faults: []rankjob.Fault{{Kind: rankjob.SlowHost, Rank: 2, FromStep: 10, Ns: 6 * analyzetest.Ms}},
	}.Recording(t)
	want := make(map[string]float64) // slices by track and bytes
	var flows, latest float64
	for _, r := range recording.Rows {
		if r.Kind != format.KindCollective {
			continue
		}
		want[fmt.Sprintf("rank %d of %d, %d", r.CommunicatorRank, r.CommunicatorSize, r.Bytes)]++
		if r.CommunicatorRank > 0 {
			flows++
		}
	}
	results := viewers.QueryPerfetto(
		t,
		writeHostTrace(t, recording),
		viewers.PerfettoErrorsQuery,
		collectivesQuery+`select substr(track, instr(track, ', ') + 2) || ', ' || extract_arg(arg_set_id, 'debug.bytes') key,
			count(*) n, min(dur) shortest, max(depth) depth, count(distinct name) names from op group by 1`,
		collectivesQuery+`select count(*) n, sum(i.name = o.name and i.ts >= o.ts and i.pid != o.pid) same,
			sum(extract_arg(i.arg_set_id, 'debug.after_first_ns') >= i.ts - o.ts) late
			from flow f join op i on f.slice_in = i.id join op o on f.slice_out = o.id`,
		collectivesQuery+`select extract_arg(arg_set_id, 'debug.rank') rank, count(*) n from op
			where extract_arg(arg_set_id, 'debug.arrival') = '4 of 4 recorded ranks'
			and extract_arg(arg_set_id, 'debug.after_first_ns') > 5000000 group by 1`,
		collectivesQuery+`select count(*) n from op join __intrinsic_track_event_callstacks c on op.id = c.slice_id`,
		`select count(*) n from slice where name glob 'nccl*'`,
	)
	if len(results[0]) != 0 {
		t.Errorf("trace_processor complains: %v", results[0])
	}
	for _, row := range results[1] {
		key := row["key"].(string)
		if row["n"] != want[key] || row["depth"] != 0.0 || row["shortest"].(float64) <= 0 {
			t.Errorf("%v, want %v operations", row, want[key])
		}
		latest += row["n"].(float64)
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("no slices of %v", want)
	}
	if row := results[2][0]; row["n"] != flows || row["same"] != flows || row["late"] != flows {
		t.Errorf("%v, want %v flows", row, flows)
	}
	if len(results[3]) != 1 || results[3][0]["rank"] != 2.0 || results[3][0]["n"].(float64) < 90 {
		t.Errorf("late are %v", results[3])
	}
	if n := results[4][0]["n"]; n != latest {
		t.Errorf("%v of %v operations have a stack", n, latest)
	}
}

// pairRecording has operations of two ranks on three communicators: "both" with exact numbers, one with relative
// numbers and one without facts.
func pairRecording(t *testing.T) *analyzetest.TestRecording {
	const ms = analyzetest.Ms
	recording := analyzetest.NewTestRecording(t)
	for rank := range int32(2) {
		pid, at := 42+rank, int64(rank)*ms
		c := analyzetest.CommunicatorRow{ID: 0x77, Ptr: 0x10, Pid: pid, Rank: rank, Size: 2, Name: "both"}
		relative := analyzetest.CommunicatorRow{
			ID: 0x88, Ptr: 0x20, Pid: pid, Rank: rank, Size: 2,
			Fact: format.CommunicatorFact{How: format.CommunicatorOlder, Numbering: format.NumberingRelative},
		}
		recording.AddCommunicator(0, c)
		recording.AddCommunicator(0, relative)
		recording.AddCollective(at+10*ms, ms, "ncclBroadcast", c, 1, 8).Root = 1
		recording.AddCollective(at+20*ms, ms, "ncclAllReduce", relative, 1, 8)
		recording.AddCollective(at+30*ms, ms, "ncclAllGather", analyzetest.CommunicatorRow{Ptr: 0x30, Pid: pid}, 0, 8)
		// each rank sends to the other one, in a group
		for i, name := range []string{"ncclSend", "ncclRecv"} {
			r := recording.AddCollective(at+int64(40+i*10)*ms, ms, name, c, 1, 8)
			r.Root, r.Group, r.Reduction = 1-rank, 7, ""
		}
		// two threads overlap, and one of them has not returned
		open := recording.AddCollective(at+60*ms, 40*ms, "ncclAllReduce", c, 2, 8)
		open.Flags, open.Reduction = format.FlagOpen, format.ReductionCustom
		failed := recording.AddCollective(at+70*ms, ms, "ncclReduceScatter", c, 3, 8)
		failed.Tid, failed.Result, failed.DataType, failed.Bytes = pid+10, 4, "float3", -1
	}
	return recording
}

// TestPerfettoReadsSendAndRecv checks flows between Send and Recv, operations whose numbers do not agree, calls that
// overlap, and arguments of single operations.
func TestPerfettoReadsSendAndRecv(t *testing.T) {
	testclass.Browser(t)
	results := viewers.QueryPerfetto(t, writeHostTrace(t, pairRecording(t)), viewers.PerfettoErrorsQuery,
		collectivesQuery+`select o.name || ' of ' || o.pid || ', ' || i.name || ' of ' || i.pid arrow from flow f
			join op i on f.slice_in = i.id join op o on f.slice_out = o.id order by o.ts, i.ts, o.name`,
		collectivesQuery+`select track, count(*) n, max(depth) depth from op where pid = 43 group by 1`,
		`select extract_arg(arg_set_id, 'debug.root') root, extract_arg(arg_set_id, 'debug.communicator') id,
			extract_arg(arg_set_id, 'debug.communicator_name') name from slice where name glob 'Broadcast*' limit 1`,
		`select extract_arg(arg_set_id, 'debug.open') open, extract_arg(arg_set_id, 'debug.reduction') reduction
			from slice where name = 'AllReduce #2' limit 1`,
		`select extract_arg(arg_set_id, 'debug.result') result, extract_arg(arg_set_id, 'debug.data_type') type,
			extract_arg(arg_set_id, 'debug.thread') thread from slice where name = 'ReduceScatter #3' order by ts limit 1`,
		`select extract_arg(arg_set_id, 'debug.peer') peer, extract_arg(arg_set_id, 'debug.group') "group"
			from slice where name = 'Recv from 1 #1'`)
	if len(results[0]) != 0 {
		t.Errorf("trace_processor complains: %v", results[0])
	}
	for i, want := range map[int]string{
		1: `[{"arrow":"Broadcast #1 of 42, Broadcast #1 of 43"},{"arrow":"Send to 1 #1 of 42, Recv from 0 #1 of 43"},` +
			`{"arrow":"Send to 0 #1 of 43, Recv from 1 #1 of 42"},{"arrow":"AllReduce #2 of 42, AllReduce #2 of 43"},` +
			`{"arrow":"ReduceScatter #3 of 42, ReduceScatter #3 of 43"}]`,
		2: `[{"depth":0,"n":1,"track":"collectives of 0000000000000088, rank 1 of 2"},` +
			`{"depth":0,"n":4,"track":"collectives of both, rank 1 of 2"},` +
			`{"depth":0,"n":1,"track":"collectives of both, rank 1 of 2 (overlapping 1)"},` +
			`{"depth":0,"n":1,"track":"collectives of unknown"}]`,
		3: `[{"id":"0000000000000077","name":"both","root":1}]`,
		4: `[{"open":1,"reduction":"custom"}]`,
		5: `[{"result":4,"thread":52,"type":"unknown"}]`,
		6: `[{"group":7,"peer":1}]`,
	} {
		if got := viewers.EncodeJSON(t, results[i]); got != want {
			t.Errorf("query %d: %s, want %s", i, got, want)
		}
	}
}

// operationsOf returns the names of the operations of NCCL in a trace, by track.
func operationsOf(d *decoded) (list []string) {
	for _, s := range d.slices {
		if strings.Contains(s.track, "collectives of") {
			list = append(list, s.track+": "+s.name)
		}
	}
	return list
}

// TestCollectivesInParts checks that parts of a trace have all operations, that a limit counts those that it omits, and
// that filters select some.
func TestCollectivesInParts(t *testing.T) {
	testclass.Unit(t)
	tl := pairRecording(t).Timeline()
	whole, stats := traced(t, tl, Options{})
	all := operationsOf(whole)
	if len(all) != 14 || stats.Calls != 14 {
		t.Fatalf("%d operations, %d calls", len(all), stats.Calls)
	}
	seen := make(map[string]bool)
	parts, _ := inParts(t, tl, 3)
	for _, part := range parts {
		for _, name := range operationsOf(decode(t, part.Bytes())) {
			seen[name] = true
		}
	}
	if len(seen) != len(all) || len(parts) < 4 {
		t.Errorf("%d of %d operations in %d parts", len(seen), len(all), len(parts))
	}
	if stats, err := WriteTrace(tl, io.Discard, Options{MaxSlices: 5}); err != nil || stats.LeftOut != 9 ||
		stats.LeftOutNs != analyzetest.Epoch+31*analyzetest.Ms {
		t.Errorf("%+v, %v", stats, err)
	}
	for _, c := range []struct {
		filter query.Filter
		want   int
	}{
		{query.Filter{Pids: []int32{43}}, 7},
		{query.Filter{Tids: []int32{52}}, 1},
		{query.Filter{FromNs: analyzetest.Epoch + 80*analyzetest.Ms}, 2}, // those that have not returned
	} {
		if d, _ := traced(t, tl, Options{Filter: c.filter}); len(operationsOf(d)) != c.want {
			t.Errorf("%+v selects %d operations, want %d", c.filter, len(operationsOf(d)), c.want)
		}
	}
}

// TestArrivalsAreForgotten checks that operations which only some ranks call do not need more and more memory.
func TestArrivalsAreForgotten(t *testing.T) {
	testclass.Unit(t)
	var c arrivalCounts
	for i := range uint64(10 * maxArrivals) {
		c.add(2*i, int64(i), 2)
		if a := c.add(2*i+1, int64(i), 2); a.ranks != 1 {
			t.Fatalf("operation %d has %d calls", i, a.ranks)
		}
		if a := c.add(2*i+1, int64(i)+5, 2); a != (arrival{int64(i), 2}) {
			t.Fatalf("operation %d: %+v", i, a)
		}
		if n := len(c.young) + len(c.old); n > 2*maxArrivals {
			t.Fatalf("%d operations after %d", n, i)
		}
	}
	if a := c.add(20*maxArrivals-2, 0, 2); a.ranks != 2 {
		t.Errorf("a late operation is forgotten: %+v", a)
	}
}

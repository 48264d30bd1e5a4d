//go:build linux

package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// ncclCall is a line of simnccl's ledger: a call of NCCL.
type ncclCall struct {
	pid, tid                  int32
	name                      string
	result                    int32
	startNs, endNs            int64 // CLOCK_MONOTONIC
	ptr, hash                 int64
	rank, size                int32
	sequence, group, count    int64
	dataType, reduction, root int
	stream, bytes             int64
	isOperation               bool
}

// readNCCLLedger returns the calls of simnccl's ledger by thread, in order of their starts.
func readNCCLLedger(t *testing.T, path string) map[int32][]ncclCall {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	calls := make(map[int32][]ncclCall)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		f := strings.Split(lines.Text(), "\t")
		if f[0] != "call" {
			continue
		}
		number := func(i int) int64 {
			n, err := strconv.ParseInt(f[i], 10, 64)
			if err != nil {
				t.Fatalf("ledger: %q: %v", lines.Text(), err)
			}
			return n
		}
		hash, err := strconv.ParseUint(f[9], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		c := ncclCall{
			pid: int32(number(1)), tid: int32(number(2)), name: f[4], result: int32(number(5)),
			startNs: number(6), endNs: number(7), ptr: number(8), hash: int64(hash), rank: int32(number(10)),
			size: int32(number(11)), sequence: number(12), group: number(13), count: number(14),
			dataType: int(number(15)), reduction: int(number(16)), root: int(number(17)),
			stream: number(18), bytes: number(19), isOperation: number(3) != 0,
		}
		calls[c.tid] = append(calls[c.tid], c)
	}
	for _, list := range calls {
		slices.SortFunc(list, func(a, b ncclCall) int { return int(a.startNs - b.startNs) })
	}
	for tid, list := range calls {
		calls[tid] = withoutInner(list)
	}
	return calls
}

// withoutInner removes calls that another call makes, such as those of ncclCommInitAll.
func withoutInner(list []ncclCall) (outer []ncclCall) {
	untilNs := int64(0)
	for i := range list {
		if list[i].startNs < untilNs {
			continue
		}
		untilNs, outer = list[i].endNs, append(outer, list[i])
	}
	return outer
}

// recordedNCCLCalls returns the rows of class collective by thread, in order of their starts.
func recordedNCCLCalls(t *testing.T, path string) map[int32][]format.Row {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	calls := make(map[int32][]format.Row)
	err = rec.Rows(func(r *format.Row) error {
		calls[r.Tid] = append(calls[r.Tid], *r)
		return nil
	}, format.ClassCollective)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range calls {
		slices.SortFunc(list, func(a, b format.Row) int { return int(a.StartNs - b.StartNs) })
	}
	return calls
}

// nameAt returns the name at an index, custom behind the last one, and "" at -1.
func nameAt(names []string, i int, custom string) string {
	switch {
	case i == -1:
		return ""
	case i >= 0 && i < len(names):
		return names[i]
	}
	return custom
}

// difference describes the difference between a row and a call, "" if there is none.
func (c *ncclCall) difference(r *format.Row, offsetNs int64) string {
	if r.Name != c.name || r.Result != c.result {
		return fmt.Sprintf("recorded as %s, result %d, not %d", r.Name, r.Result, c.result)
	}
	if r.StartNs-offsetNs > c.startNs || r.StartNs-offsetNs+r.DurNs < c.endNs {
		return "its time is not inside of the row's"
	}
	if c.name == "ncclGroupEnd" && int64(r.Value) != c.count {
		return fmt.Sprintf("%v operations, not %d", r.Value, c.count)
	}
	if !c.isOperation || c.result != 0 {
		return ""
	}
	if c.size == 1 {
		c.sequence = r.Sequence // NCCL does not count them
	}
	if r.Communicator == 0 { // it was destroyed before the recorder could read it
		c.hash, c.rank, c.size = 0, r.CommunicatorRank, r.CommunicatorSize
	}
	if c.reduction == -1 && r.Reduction == format.ReductionCustom && strings.Contains(c.name, "Reduce") {
		c.reduction = len(format.Reductions) // the ledger has no other number for the first operator of a program
	}
	for _, pair := range []struct {
		what      string
		got, want any
	}{
		{"communicator", r.Communicator, c.hash},
		{"address", r.Ptr, c.ptr},
		{"rank", r.CommunicatorRank, c.rank},
		{"size", r.CommunicatorSize, c.size},
		{"number", r.Sequence, c.sequence},
		{"in a group", r.Group != 0, c.group != 0},
		{"elements", int64(r.Value), c.count},
		{"bytes", r.Bytes, c.bytes},
		{"type", r.DataType, nameAt(format.DataTypes[:], c.dataType, "")},
		{"reduction", r.Reduction, nameAt(format.Reductions[:], c.reduction, format.ReductionCustom)},
		{"root", int(r.Root), c.root},
		{"stream", r.Stream, c.stream},
	} {
		if pair.got != pair.want {
			return fmt.Sprintf("%s %v, not %v", pair.what, pair.got, pair.want)
		}
	}
	return ""
}

// TestNCCLCallsEqualTheLedger records all functions of NCCL, also in processes, and compares each call.
func TestNCCLCallsEqualTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	for _, args := range [][]string{{}, {"--processes"}, {"--older"}, {"--remake", "300"}, {"--nonblocking"}} {
		t.Run(strings.Join(append([]string{"ncclcalls"}, args...), " "), func(t *testing.T) {
			ledger := filepath.Join(t.TempDir(), "nccl.tsv")
			p := startSim(t, []string{"SIMNCCL_LEDGER=" + ledger, "SIMNCCL_DIR=" + t.TempDir()}, "ncclcalls",
				append([]string{"--ranks", "2", "--wait"}, args...)...)
			p.expect("ready")
			opt := testOptions(t, p.pid())
			s := start(t, opt)
			sinceNs := monotonic()
			runWhile(t, s, func() {
				p.step()
				p.expect("done")
				p.finish()
			})
			compareNCCL(t, opt.Output, ledger, sinceNs, len(args) > 0 && args[0] == "--older")
			count := metaOf(t, opt.Output).Calls["collective"]
			if count.Recorded == 0 || count.Seen != count.Recorded+count.Lost {
				t.Errorf("calls of NCCL: %+v", count)
			}
		})
	}
}

// collectivesBefore returns the collectives before the recording of each communicator, by its hash. A later fact
// replaces an earlier one: a communicator may look uncalled until its first row is written.
func collectivesBefore(t *testing.T, path string) map[int64]int64 {
	t.Helper()
	type member struct{ hash, pid, ptr int64 }
	members, before := make(map[member]int64), make(map[int64]int64)
	for _, row := range factRows(t, path, format.KindCommunicator) {
		var fact format.CommunicatorFact
		if err := json.Unmarshal([]byte(row.Message), &fact); err != nil {
			t.Fatal(err)
		}
		members[member{row.Communicator, int64(row.Pid), row.Ptr}] = fact.Before
	}
	for m, n := range members {
		before[m.hash] = max(before[m.hash], n)
	}
	return before
}

// compareNCCL compares a recording with the calls of a ledger that began after sinceNs.
func compareNCCL(t *testing.T, path, ledger string, sinceNs int64, hasOlder bool) {
	t.Helper()
	rows, offsetNs, compared := recordedNCCLCalls(t, path), metaOf(t, path).ClockOffsetNs, 0
	before := collectivesBefore(t, path)
	for tid, calls := range readNCCLLedger(t, ledger) {
		calls = slices.DeleteFunc(calls, func(c ncclCall) bool { return c.startNs < sinceNs })
		if len(calls) != len(rows[tid]) {
			missing := make(map[string]int)
			for i := range calls {
				missing[calls[i].name]++
			}
			for i := range rows[tid] {
				missing[rows[tid][i].Name]--
			}
			maps.DeleteFunc(missing, func(_ string, n int) bool { return n == 0 })
			t.Errorf(
				"thread %d: %d calls recorded, %d in the ledger; missing %v",
				tid,
				len(rows[tid]),
				len(calls),
				missing,
			)
		}
		wrong := 0
		for i := range min(len(calls), len(rows[tid])) {
			row := &rows[tid][i]
			if row.Kind == format.KindCollective && row.Name != "ncclSend" && row.Name != "ncclRecv" &&
				row.Sequence > 0 {
				row.Sequence += before[row.Communicator]
			}
			if diff := calls[i].difference(row, offsetNs); diff != "" {
				if wrong++; wrong < 5 {
					t.Errorf("thread %d, call %d, %s: %s", tid, i, calls[i].name, diff)
				}
			}
			compared++
		}
	}
	if compared < 100 {
		t.Errorf("only %d calls were compared", compared)
	}
	numbering, unique, hasUnique := make(map[string]int), make(map[int64]int64), false
	for _, row := range factRows(t, path, format.KindCommunicator) {
		var fact format.CommunicatorFact
		if err := json.Unmarshal([]byte(row.Message), &fact); err != nil {
			t.Fatal(err)
		}
		numbering[fact.How+" "+fact.Numbering]++
		if known := unique[row.Communicator]; known != 0 && fact.UniqueID != known && row.Communicator != 0 {
			t.Errorf("communicator %x has the unique ids %x and %x", row.Communicator, known, fact.UniqueID)
		}
		unique[row.Communicator] = fact.UniqueID
		hasUnique = hasUnique || fact.UniqueID != 0 // also one that ended before its identity was read
	}
	if !hasUnique {
		t.Error("no communicator has a unique id")
	}
	t.Logf("%d calls equal; communicators %v", compared, numbering)
	for how, n := range numbering {
		if !hasOlder && strings.HasPrefix(how, format.CommunicatorOlder) {
			t.Errorf("%d communicators are called %s than the recording", n, how)
		}
	}
	if hasOlder && numbering["older counter"] == 0 {
		t.Errorf("no communicator is older than the recording: %v", numbering)
	}
}

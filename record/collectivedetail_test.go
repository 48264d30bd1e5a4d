//go:build linux

package record

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
)

// detailCounts counts calls of NCCL by what the recording has of them.
type detailCounts struct {
	calls, operations, groups, missingGroups, unknownGroups, unreturned int
}

// compareDetails compares a recording, in which details about NCCL were dropped, with the calls of a ledger that began
// after sinceNs. Groups may be missing; of operations only groups, durations and results may. Without their returns,
// failed operations have numbers.
func compareDetails(t *testing.T, path, ledger string, sinceNs int64) (n detailCounts) {
	t.Helper()
	rows, offsetNs := recordedNCCLCalls(t, path), metaOf(t, path).ClockOffsetNs
	for tid, calls := range readNCCLLedger(t, ledger) {
		list, failed, wrong := rows[tid], make(map[int64]int64), 0
		for i := range calls {
			c := &calls[i]
			if c.startNs < sinceNs {
				continue
			}
			isGroup := strings.HasPrefix(c.name, "ncclGroup")
			if isGroup && (len(list) == 0 || list[0].Name != c.name) {
				n.missingGroups++
				continue
			}
			if len(list) == 0 {
				t.Errorf("thread %d: %s and later calls have no row", tid, c.name)
				break
			}
			row := list[0]
			list = list[1:]
			n.add(&row, isGroup)
			if diff := detailDifference(c, &row, failed, offsetNs); diff != "" {
				if wrong++; wrong < 5 {
					t.Errorf("thread %d, call %d, %s: %s", tid, i, c.name, diff)
				}
			}
		}
		if len(list) > 0 {
			t.Errorf("thread %d: %d rows are not in the ledger, first %s", tid, len(list), list[0].Name)
		}
	}
	return n
}

// add counts a row.
func (n *detailCounts) add(row *format.Row, isGroup bool) {
	n.calls++
	if isGroup {
		n.groups++
	}
	if row.Kind != format.KindCollective {
		return
	}
	n.operations++
	if row.Group == format.GroupUnknown {
		n.unknownGroups++
	}
	if row.Flags&format.FlagNoReturn != 0 {
		n.unreturned++
	}
}

// detailDifference describes the difference between a call and a row without its missing details, "" if there is none.
// failed counts the failed operations of each communicator that have numbers.
func detailDifference(c *ncclCall, row *format.Row, failed map[int64]int64, offsetNs int64) string {
	if row.Group == format.GroupUnknown {
		row.Group = c.group
	}
	isNumbered := row.Kind == format.KindCollective && row.Sequence > 0 && row.Name != "ncclSend" &&
		row.Name != "ncclRecv"
	if isNumbered {
		row.Sequence -= failed[row.Ptr]
	}
	if row.Flags&format.FlagNoReturn != 0 {
		if row.DurNs != 0 || row.Result != 0 {
			return fmt.Sprintf("duration %d and result %d without a return", row.DurNs, row.Result)
		}
		row.Result, row.DurNs = c.result, c.endNs-(row.StartNs-offsetNs)
		if c.result != 0 && isNumbered {
			failed[row.Ptr]++
		}
	}
	return c.difference(row, offsetNs)
}

// TestNCCLWithoutDetailsEqualsTheLedger drops groups and returns before the first call: operations, numbers and
// communicators still equal the ledger.
func TestNCCLWithoutDetailsEqualsTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needMulti(t)
	for _, details := range [][]probe.CollectiveDetail{
		{probe.CollectiveGroups}, {probe.CollectiveGroups, probe.CollectiveReturns},
	} {
		for _, args := range [][]string{{}, {"--processes"}} {
			name := fmt.Sprintf("%d %s", len(details), strings.Join(args, " "))
			t.Run(name, func(t *testing.T) { testWithoutDetails(t, details, args) })
		}
	}
}

func testWithoutDetails(t *testing.T, details []probe.CollectiveDetail, args []string) {
	ledger := filepath.Join(t.TempDir(), "nccl.tsv")
	p := startSim(t, []string{"SIMNCCL_LEDGER=" + ledger, "SIMNCCL_DIR=" + t.TempDir()}, "ncclcalls",
		append([]string{"--ranks", "2", "--rounds", "3", "--wait"}, args...)...)
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Attach = privilege.AttachMulti
	s := start(t, opt)
	for _, detail := range details {
		if err := s.probes.DropCollectives(detail, nil); err != nil {
			t.Fatal(err)
		}
	}
	sinceNs := monotonic()
	runWhile(t, s, func() {
		p.step()
		p.expect("done")
		p.finish()
	})
	n := compareDetails(t, opt.Output, ledger, sinceNs)
	t.Logf("%+v", n)
	if n.operations < 100 || n.groups != 0 || n.missingGroups == 0 || n.unknownGroups != n.operations {
		t.Errorf("counts %+v", n)
	}
	if hasReturns := len(details) == 1; hasReturns != (n.unreturned == 0) {
		t.Errorf("%d operations have no return", n.unreturned)
	}
	checkNCCLCounts(t, opt.Output, n.calls)
}

// checkNCCLCounts checks that all calls of NCCL are rows, and that none is lost, left or open.
func checkNCCLCounts(t *testing.T, path string, calls int) {
	t.Helper()
	count := metaOf(t, path).Calls["collective"]
	if count.Lost != 0 || count.Abandoned != 0 || count.Open != 0 || count.Seen != count.Recorded ||
		count.Recorded != int64(calls) {
		t.Errorf("%d rows, counts %+v", calls, count)
	}
}

// TestNestedNCCLKeepsReturns records a wrapper that has probes, too. Only returns distinguish a call inside of another one
// from a later call.
func TestNestedNCCLKeepsReturns(t *testing.T) {
	testclass.Root(t)
	needMulti(t)
	library, err := os.ReadFile(filepath.Join(simcudaDir, "libncclwrapper.so"))
	if err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(t.TempDir(), "libnccl-0123abcd.so") // a name of NCCL
	if err := os.WriteFile(wrapper, library, 0o755); err != nil {
		t.Fatal(err)
	}
	p := startSim(t, []string{"SIMNCCL_PRELOADED=1", "LD_PRELOAD=" + wrapper, "SIMNCCL_DIR=" + t.TempDir()},
		"ncclcalls", "--ranks", "2", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Attach = privilege.AttachMulti
	s := start(t, opt)
	runWhile(t, s, func() {
		if err := s.probes.DropCollectives(probe.CollectiveGroups, nil); err != nil {
			t.Error(err)
		}
		if more := s.probes.DroppableCollectives(); more != probe.CollectiveReturns {
			t.Errorf("detail %d can be dropped before the first call", more)
		}
		p.step()
		p.expect("done")
		if more := s.probes.DroppableCollectives(); more != 0 {
			t.Errorf("detail %d can be dropped after nested calls", more)
		}
		p.finish()
	})
}

//go:build linux

package stack

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestDistinctStacksAreBounded(t *testing.T) {
	testclass.Unit(t)
	table := NewTable(nil)
	table.roomBytes = 3 * (bytesPerStack + bytesPerStackID)
	keep := func(id uint64, pid uint32) []format.Row {
		return table.insertStack(
			id,
			table.keys.hashAddresses(pid, []uint64{id}),
			format.Row{Pid: int32(pid), StackStatus: format.StackComplete},
		)
	}
	for id := range uint64(3) {
		if rows := keep(id, 7); len(rows) != 1 || rows[0].Kind != format.KindStack || rows[0].StackID != int32(id)+1 {
			t.Fatalf("stack %d: %v", id, rows)
		}
	}
	if rows := keep(3, 7); len(rows) != 1 || rows[0].Kind != format.KindNote {
		t.Errorf("full: %v, want a note", rows)
	}
	if rows := keep(4, 7); len(rows) != 0 {
		t.Errorf("full, already noted: %v", rows)
	}
	if rows := table.aliasStackID(5, table.GetStack(0)); len(rows) != 0 || table.GetStack(5) != &lostStack {
		t.Errorf("a full table accepted another ID of a known stack")
	}
	if table.GetStack(3) != &lostStack || table.GetStack(2).ID != 3 {
		t.Error("Get returned the wrong stack")
	}
	table.ForgetProcesses(map[int32]bool{7: true})
	if table.roomBytes != 3*(bytesPerStack+bytesPerStackID) || len(table.stacks)+len(table.chains) != 0 {
		t.Errorf("room %d after the process is gone", table.roomBytes)
	}
	if rows := keep(6, 8); len(rows) != 1 || rows[0].StackID != 4 {
		t.Errorf("after the process is gone: %v", rows)
	}
}

func TestChainsAreToldApart(t *testing.T) {
	testclass.Unit(t)
	keys := newChainHasher()
	frames := func(f ...format.Frame) chainKey { return keys.hashFrames(1, "", f) }
	a, b := format.Frame{Func: "a", File: "b"}, format.Frame{Func: "ab"}
	seen := make(map[chainKey]string)
	for name, key := range map[string]chainKey{
		"a":      frames(a),
		"b":      frames(b),
		"ab":     frames(a, b),
		"ba":     frames(b, a),
		"line":   frames(format.Frame{Func: "a", File: "b", Line: 1}),
		"addr":   frames(format.Frame{Func: "a", File: "b", Addr: 1}),
		"cut":    keys.hashFrames(1, "depth", []format.Frame{a}),
		"pid":    keys.hashFrames(2, "", []format.Frame{a}),
		"1":      keys.hashAddresses(1, []uint64{1}),
		"1, 2":   keys.hashAddresses(1, []uint64{1, 2}),
		"1 of 2": keys.hashAddresses(2, []uint64{1}),
	} {
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have the same key", name, other)
		}
		seen[key] = name
	}
	again := keys.hashFrames(1, "", []format.Frame{a, b})
	if seen[again] != "ab" {
		t.Error("the same chain has two keys")
	}
}

// TestStacksOfANewProcessAreNamed lets the table read a process's mappings before the process has
// loaded anything, as in record -- COMMAND. Later lookups must find the loaded code.
func TestStacksOfANewProcessAreNamed(t *testing.T) {
	testclass.Unit(t)
	self := uint32(os.Getpid())
	table := NewTable(nil)
	defer table.Close()
	space := table.addressSpaceOf(self)
	space.maps = nil                                  // the mappings were read too early
	space.nextRefresh = time.Now().Add(1 * time.Hour) // and reading them took long
	pc := uint64(reflect.ValueOf(TestStacksOfANewProcessAreNamed).Pointer())
	chain, status := space.cutInvalidAddresses([]uint64{pc, pc + 1, 1 << 46})
	if len(chain) != 2 || status != format.StackTruncated {
		t.Errorf("chain %x, status %s", chain, status)
	}
	if frame, _ := space.nameAddress(pc, false); !strings.HasSuffix(frame.Module, "stack.test") || frame.Addr == 0 {
		t.Errorf("frame %+v", frame)
	}
}

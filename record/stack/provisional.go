//go:build linux

package stack

import (
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// provisionalBit marks the IDs of stacks that were not unwound yet: PROVISIONAL of ration.h.
const provisionalBit = 1 << 63

// isProvisional reports whether a kernel stack ID is made from a fingerprint.
func isProvisional(id uint64) bool { return id&provisionalBit != 0 }

// rationedStack is the stack of rationed calls that do not fit into the table.
var rationedStack = KnownStack{Status: format.StackRationed}

// getProvisional returns the stack of a provisional ID. A new ID gets a number. Learn says later
// which stack the number means.
func (t *Table) getProvisional(id uint64, pid int32) *KnownStack {
	if s, ok := t.stacks[id]; ok {
		return s
	}
	if t.roomBytes < bytesPerStack+bytesPerStackID {
		return &rationedStack
	}
	t.roomBytes -= bytesPerStack + bytesPerStackID
	t.lastID++
	s := &KnownStack{ID: t.lastID, pid: pid, Status: format.StackRationed}
	t.stacks[id] = s
	return s
}

// Learn returns the row that says which stack the provisional ID of earlier calls means. Later calls
// with this ID get that stack.
func (t *Table) Learn(e *bpf.CudaLearnedEvent) []format.Row {
	known, ok := t.stacks[e.StackId]
	if !ok {
		return nil // the stack's record was lost, or the table is full
	}
	rationed, ok := t.stacks[e.ProvisionalId]
	if !ok {
		return t.aliasStackID(e.ProvisionalId, known)
	}
	t.stacks[e.ProvisionalId] = known
	if rationed.Status != format.StackRationed {
		return nil // learned before
	}
	t.roomBytes += bytesPerStack
	return []format.Row{{
		Kind: format.KindStackAlias, Pid: int32(e.Pid), Device: -1, StackID: rationed.ID,
		Value: float64(known.ID), Site: known.Site, StackStatus: known.Status,
	}}
}

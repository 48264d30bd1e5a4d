//go:build linux

package hold

import (
	"slices"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/internal/testclass"
)

// waitingFunctions are the functions of hold.bpf.c that run, or are called from, while a thread waits.
var waitingFunctions = []string{
	bpf.HoldProgLibrariesChanged, bpf.HoldProgCudaCalled, bpf.HoldProgForked, "hold", "wait_for_release", "wait_step",
}

// TestStacksOfHolds checks that threads which wait at the same time cannot overwrite each other's BPF
// stack: larger stacks are in memory that all threads of a processor share (hold.bpf.c).
func TestStacksOfHolds(t *testing.T) {
	testclass.Unit(t)
	const sharedFromBytes = 64 // BPF_PRIV_STACK_MIN_SIZE of Linux
	spec, err := bpf.LoadHold()
	if err != nil {
		t.Fatal(err)
	}
	depths := make(map[string]int)
	for _, program := range spec.Programs {
		for name, depth := range stackDepths(program.Instructions) {
			depths[name] = max(depths[name], depth)
		}
	}
	for _, name := range waitingFunctions {
		if depth, ok := depths[name]; !ok || depth == 0 || depth >= sharedFromBytes {
			t.Errorf("%s has %d bytes of stack", name, depth)
		}
	}
	if depths["walk_step"] < sharedFromBytes { // it keeps a path of 256 bytes, and does not wait
		t.Errorf("walk_step has only %d bytes of stack", depths["walk_step"])
	}
}

// stackDepths returns the bytes of stack of each function.
func stackDepths(code asm.Instructions) map[string]int {
	depths, name := make(map[string]int), ""
	var ofStack []asm.Register // registers that hold the frame pointer, to which a constant is added
	for _, in := range code {
		if symbol := in.Symbol(); symbol != "" {
			name, ofStack = symbol, nil
		}
		offset := 0
		switch op := in.OpCode; {
		case op.Class().IsALU() && op.ALUOp() == asm.Mov && op.Source() == asm.RegSource && in.Src == asm.R10:
			ofStack = append(ofStack, in.Dst)
		case op.Class().IsALU() && op.ALUOp() == asm.Add && op.Source() == asm.ImmSource && slices.Contains(ofStack, in.Dst):
			offset = int(in.Constant)
		case op.Class().IsStore() && in.Dst == asm.R10, op.Class().IsLoad() && in.Src == asm.R10:
			offset = int(in.Offset)
		}
		depths[name] = max(depths[name], -offset)
	}
	return depths
}

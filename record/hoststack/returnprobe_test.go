//go:build linux && amd64

package hoststack

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elftest"
)

// TestReturnProbes checks stacks whose return addresses return probes have replaced, as gpurec's own
// probes do.
func TestReturnProbes(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	l := openSnapshotter(t)
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	defer program.Close()
	file := elftest.Compile(t, "testdata/waits.c", "waits", "-pthread", "-w")
	executable, err := link.OpenExecutable(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, function := range []string{
		"leaf_sleep", "middle", "sleeper", "compare", "sorter", "wait_for_condition", "handler", "wait_in_handler",
		"wait_in_big_frame", "wait_for_vfork", "spin", "main",
	} {
		probe, err := executable.Uretprobe(function, program, nil)
		if err != nil {
			testclass.Missing(t, err.Error())
		}
		defer probe.Close()
	}
	p := start(t, file)
	p.goOn(t)
	p.waitForThreads(t, len(waitsTruth)-1, 1)
	checkWaits(t, takeSnapshot(t, l, p.pid))
}

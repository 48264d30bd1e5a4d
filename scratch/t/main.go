package main

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"
)

func main() {
	fmt.Println(rlimit.RemoveMemlock())
	for _, fn := range []string{"security_mmap_file", "vm_mmap_pgoff", "do_mmap", "security_file_open", "security_file_mprotect", "do_unlinkat", "uprobe_mmap", "mmap_region", "ksys_mmap_pgoff", "perf_event_mmap"} {
		for _, at := range []ebpf.AttachType{ebpf.AttachTraceFEntry, ebpf.AttachTraceFExit} {
			p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Tracing, AttachType: at, AttachTo: fn, License: "GPL",
				Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
			fmt.Println(fn, at, p, err)
		}
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.LSM, AttachType: ebpf.AttachLSMMac, AttachTo: "mmap_file", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	fmt.Println("lsm", p, err)
}

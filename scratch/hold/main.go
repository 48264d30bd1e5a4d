package main

import (
"debug/elf"
	"errors"
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
)

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Printf("%+v\n", err)
		os.Exit(1)
	}
	return v
}

func mono() uint64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}

func main() {
	work := must(time.ParseDuration(os.Args[1]))
	var o bpf.HoldObjects
	spec := must(bpf.LoadHold())
	if err := spec.LoadAndAssign(&o, &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}}); err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) { fmt.Printf("%+v\n", ve) }
		fmt.Printf("%+v\n", err)
		os.Exit(1)
	}
	for _, p := range []*ebpf.Program{o.ForgetLibraries} {
		defer must(link.AttachTracing(link.TracingOptions{Program: p})).Close()
	}
	ex := must(link.OpenExecutable("/lib64/ld-linux-x86-64.so.2"))
	f := must(elf.Open("/lib64/ld-linux-x86-64.so.2"))
	var at = map[string]uint64{}
	for _, sym := range must(f.DynamicSymbols()) {
		at[sym.Name] = sym.Value
	}
	fmt.Printf("%x %x\n", at["_r_debug"], at["_dl_debug_state"])
	defer must(ex.Uprobe("_dl_debug_state", o.HoldThread, &link.UprobeOptions{Cookie: at["_r_debug"] - at["_dl_debug_state"]})).Close()
	go func() {
		for {
			o.AliveNs.Set(mono())
			time.Sleep(10 * time.Millisecond)
		}
	}()
	rd := must(ringbuf.NewReader(o.HoldRequests))
	ptrace := os.Args[2] == "ptrace"
	go func() {
		runtime.LockOSThread()
		for {
			rec, err := rd.Read()
			if err != nil {
				return
			}
			pid, tid := binary.LittleEndian.Uint32(rec.RawSample), binary.LittleEndian.Uint32(rec.RawSample[4:])
			start := binary.LittleEndian.Uint64(rec.RawSample[8:])
			asked := mono()
			seized := false
			if ptrace {
				_, _, e := syscall.Syscall6(syscall.SYS_PTRACE, 0x4206, uintptr(tid), 0, 0, 0, 0)
				if e == 0 {
					_, _, e = syscall.Syscall6(syscall.SYS_PTRACE, 0x4207, uintptr(tid), 0, 0, 0, 0)
					seized = true
				} else {
					fmt.Println("seize:", e)
				}
			}
			released := uint32(2)
			if seized {
				o.Holds.Update(tid, released, ebpf.UpdateAny)
				var ws syscall.WaitStatus
				w, err := syscall.Wait4(int(tid), &ws, 0x40000000, nil)
				fmt.Printf("stopped %d %v status %x at +%.3f ms (event after %.3f)\n", w, err, uint32(ws), float64(mono()-start)/1e6, float64(asked-start)/1e6)
			}
			time.Sleep(work)
			if seized {
				if err := syscall.PtraceDetach(int(tid)); err != nil {
					fmt.Println("detach", err)
				}
			} else {
				o.Holds.Update(tid, released, ebpf.UpdateAny)
			}
			fmt.Printf("held pid %d tid %d for %.3f ms\n", pid, tid, float64(mono()-start)/1e6)
		}
	}()
	cmd := exec.Command(os.Args[3], os.Args[4:]...)
	cmd.Stderr = os.Stderr
	out := must(cmd.StdoutPipe())
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: false}
	// target: by parent: gpurec itself is target so that children ... put after start (race ok for test)
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	o.Targets.Update(uint32(cmd.Process.Pid), uint32(1), ebpf.UpdateAny)
	s := bufio.NewScanner(out)
	for s.Scan() {
		fmt.Println(s.Text())
	}
	fmt.Println(cmd.Wait())
	var n uint64
	o.Unreleased.Get(&n)
	fmt.Println("unreleased", n, strconv.Itoa(os.Getpid()))
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestMain makes this test binary run as gpurec if a script starts it by that name. Scripts can
// then kill a separate gpurec process.
func TestMain(m *testing.M) {
	if os.Getenv("CACHE_DIRECTORY") == "" { // tests do not write to /var/cache
		os.Setenv("CACHE_DIRECTORY", os.DevNull+"/none")
	}
	testscript.Main(m, map[string]func(){
		"gpurec":  func() { os.Exit(runCommandLine(context.Background(), os.Args[1:])) },
		"hostile": hostile,
	})
}

// TestScripts runs the scripts testdata/*.txt that need no probes.
func TestScripts(t *testing.T) {
	testclass.Unit(t)
	runScripts(t, func(name string) bool { return !strings.HasPrefix(name, "root-") })
}

// TestRootScripts runs the scripts testdata/root-*.txt, which attach to processes.
func TestRootScripts(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	requireSimcuda(t, "leak", privilege.AttachAuto)
	if _, err := os.Stat(filepath.Join(simcudaDir(), "../simtorch/renamed/libc10_cuda.so")); err != nil {
		testclass.Missing(t, "simtorch is not built: make simtorch")
	}
	runScripts(t, func(name string) bool { return strings.HasPrefix(name, "root-") })
}

// runScripts runs the scripts of testdata whose names are selected.
func runScripts(t *testing.T, isSelected func(name string) bool) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	must(t, err)
	files = slices.DeleteFunc(files, func(path string) bool { return !isSelected(filepath.Base(path)) })
	testscript.Run(t, testscript.Params{
		Files:               files,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("SIM", simcudaDir())
			env.Setenv("CACHE_DIRECTORY", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("SIMCUDA_STATE", filepath.Join(env.WorkDir, "simcuda-state"))
			env.Defer(func() { killPrograms(env.WorkDir) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start":     startProgram,
			"waitfor":   waitForText,
			"recording": writeRecording,
			"disk":      mountDisk,
		},
	})
}

// startProgram implements the script command "start VAR PROGRAM ARGS...": it starts a program in
// the background and sets VAR to its PID. The standard input of the program stays open. The program
// is killed at the end of the script.
func startProgram(ts *testscript.TestScript, neg bool, args []string) {
	r, w, err := os.Pipe()
	ts.Check(err)
	out, err := os.Create(ts.MkAbs(args[0] + ".out"))
	ts.Check(err)
	env := []string{
		"PATH=" + ts.Getenv("PATH"),
		"LD_LIBRARY_PATH=" + ts.Getenv("SIM"),
		"SIMCUDA_STATE=" + ts.Getenv("SIMCUDA_STATE"),
		"SIMCUDA_LEDGER=" + ts.Getenv("SIMCUDA_LEDGER"),
		"HOME=" + ts.Getenv("WORK"),
	}
	path := args[1]
	if !strings.Contains(path, "/") {
		path = "/usr/bin/" + path
	}
	p, err := os.StartProcess(path, args[1:], &os.ProcAttr{Env: env, Files: []*os.File{r, out, out}})
	ts.Check(err)
	r.Close()
	out.Close()
	go func() { _, _ = p.Wait() }() // reap the program: a zombie still has a PID
	ts.Setenv(args[0], fmt.Sprint(p.Pid))
	ts.Check(os.WriteFile(ts.MkAbs(fmt.Sprintf("program-%d", p.Pid)), nil, 0o600))
	ts.Defer(func() { w.Close() })
}

// killPrograms kills the programs that startProgram started.
func killPrograms(dir string) {
	files, _ := filepath.Glob(filepath.Join(dir, "program-*"))
	for _, f := range files {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(f), "program-%d", &pid); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// waitForText implements a script command: it waits until a file exists and, with a second
// argument, contains that text.
func waitForText(ts *testscript.TestScript, neg bool, args []string) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		data, err := os.ReadFile(ts.MkAbs(args[0]))
		if err == nil && (len(args) == 1 || strings.Contains(string(data), args[1])) {
			return
		}
	}
	ts.Fatalf("timed out waiting for %v", args)
}

// writeRecording implements the script command "recording FILE KIND": it writes a small recording,
// intact or damaged.
func writeRecording(ts *testscript.TestScript, neg bool, args []string) {
	path, kind := ts.MkAbs(args[0]), args[1]
	w, err := format.Create(path, format.Options{})
	ts.Check(err)
	second := int64(time.Second)
	start := int64(1_790_000_000) * second
	for s := range int64(3) {
		ts.Check(w.Write(format.ClassMemory, []format.Row{
			{
				Kind:        format.KindAlloc,
				Name:        "cuMemAlloc_v2",
				MemoryKind:  format.MemoryDevice,
				StartNs:     start + s*second,
				DurNs:       1000,
				Pid:         4242,
				Tid:         4242,
				Ptr:         0x7f0000000000 + s<<20,
				Bytes:       1 << 20,
				StackID:     1,
				StackStatus: format.StackFramePointer,
				Site:        "leaky",
			},
		}))
		ts.Check(errors.Join(w.Rotate(format.Meta{StartNs: start, EndNs: start + (s+1)*second}), w.Flush()))
	}
	switch kind {
	case "stacks":
		ts.Check(writeStacks(w, start))
		ts.Check(w.Finish(format.Meta{StartNs: start, EndNs: start + 3*second}))
	case "crash":
		ts.Check(writeCrash(w, start))
		ts.Check(w.Finish(format.Meta{StartNs: start, EndNs: start + 3*second}))
	case "allocator":
		ts.Check(writeAllocator(w, start))
		ts.Check(w.Finish(format.Meta{StartNs: start, EndNs: start + 3*second}))
	case "good", "truncated", "foreign", "newer":
		ts.Check(w.Finish(format.Meta{StartNs: start, EndNs: start + 3*second}))
		spoil(ts, path, kind)
	case "unfinished":
	case "damaged": // a folder of segments with one truncated segment
		ts.Check(os.Truncate(filepath.Join(w.Dir(), "000002-memory.parquet"), 50))
	default:
		ts.Fatalf("unknown kind of recording %q", kind)
	}
}

// writeCrash writes a GPU with NVML samples, and a kernel launch that fails: the driver reports an
// Xid, and a later call returns an error.
func writeCrash(w *format.Writer, start int64) error {
	const ms = int64(1e6)
	rows := []format.Row{
		{
			Kind:    format.KindDevice,
			Name:    "NVIDIA H200",
			Bytes:   140 << 30,
			StartNs: start,
			Message: `{"uuid":"GPU-aaaa"}`,
		},
		{Kind: format.KindProcess, Name: "train", Pid: 4242, StartNs: start, Device: -1},
		{
			Kind:        format.KindLaunch,
			Name:        "cuLaunchKernel",
			Kernel:      "scatter",
			StartNs:     start + 100*ms,
			DurNs:       1000,
			Pid:         4242,
			Tid:         4242,
			Context:     0xc1,
			Stream:      7,
			Site:        "step (train.py:12)",
			StackStatus: format.StackNone,
		},
		{
			Kind:        format.KindSync,
			Name:        "cuCtxSynchronize",
			StartNs:     start + 101*ms,
			DurNs:       2 * ms,
			Pid:         4242,
			Tid:         4242,
			Context:     0xc1,
			Result:      700,
			StackStatus: format.StackNone,
		},
		{
			Kind:    format.KindXid,
			Name:    format.NameXid,
			Value:   31,
			StartNs: start + 102*ms,
			Pid:     4242,
			Message: `{"pci":"0000:3b:00.0","process":"train","text":"MMU Fault","sources":["kmsg"]}`,
		},
	}
	for i := range int64(3) {
		for name, v := range map[string]float64{
			"gpm_sm_active_percent": 95,
			"clock_event_reasons":   float64(4 * (i / 2)),
		} {
			rows = append(rows, format.Row{Kind: format.KindNVML, Name: name, StartNs: start + i*1000*ms, Value: v})
		}
		rows = append(
			rows,
			format.Row{
				Kind:    format.KindNVML,
				Name:    "process_used_memory_bytes",
				Message: "train",
				Pid:     4242,
				StartNs: start + i*1000*ms + ms,
				Value:   float64(i+1) * (1 << 20),
			},
		)
	}
	for _, r := range rows {
		if err := w.Write(format.ClassOf(r.Kind), []format.Row{r}); err != nil {
			return err
		}
	}
	return nil
}

// writeAllocator writes the events of PyTorch's caching allocators of two processes.
func writeAllocator(w *format.Writer, start int64) error {
	const segment, mib = int64(0x7f1000000000), int64(1 << 20)
	rows := []format.Row{
		{
			Kind:        format.KindStack,
			StackID:     1,
			Pid:         4242,
			StackStatus: format.StackComplete,
			Site:        "forward (model.py:12)",
			Frames: []format.Frame{
				{
					Func:   "record_trace",
					Module: "/venv/torch/lib/libc10_cuda.so",
					Type:   "native",
				},
				{Func: "forward", File: "/app/model.py", Line: 12, Type: "python"},
			},
		},
	}
	for i, pid := range []int32{4242, 4243} {
		rows = append(rows, format.Row{Kind: format.KindProcess, Name: "train", Pid: pid, StartNs: start, Device: -1})
		at := start + int64(i)
		event := func(name string, ptr, bytes, allocated, reserved int64) {
			at += 500e6
			rows = append(rows, format.Row{
				Kind:           format.KindAllocator,
				Name:           name,
				StartNs:        at,
				Pid:            pid,
				Tid:            pid,
				MemoryKind:     format.MemoryTorch,
				Ptr:            ptr,
				Bytes:          bytes,
				StackID:        1,
				StackStatus:    format.StackComplete,
				AllocatedBytes: allocated,
				ReservedBytes:  reserved,
			})
		}
		event(format.AllocatorSegmentAlloc, segment, 20*mib, 0, 20*mib)
		event(format.AllocatorAlloc, segment, 4*mib, 0, 20*mib)
		event(format.AllocatorAlloc, segment+4*mib, 3*mib-100, 4*mib, 20*mib)
		event(format.AllocatorFreeRequested, segment, 4*mib, 3*mib, 20*mib)
		event(format.AllocatorFreeCompleted, segment, 4*mib, 3*mib, 20*mib)
	}
	for _, r := range rows {
		if err := w.Write(format.ClassOf(r.Kind), []format.Row{r}); err != nil {
			return err
		}
	}
	return nil
}

// writeStacks writes kernel launches with two stacks: a complete Python stack and a truncated
// stack.
func writeStacks(w *format.Writer, start int64) error {
	const libcuda, libpython, libtorch = "/usr/lib/libcuda.so.1", "/usr/lib/libpython3.12.so.1.0", "/venv/torch/lib/libtorch_cuda.so"
	python := []format.Frame{
		{Func: "cuLaunchKernel", Module: libcuda, Type: "native"},
		{Func: "at::native::add_kernel", Module: libtorch, Type: "native"},
		{Func: "c10::Dispatcher::call", Module: libtorch, Type: "native"},
		{Func: "_PyEval_EvalFrameDefault", Module: libpython, Type: "native"},
		{Func: "forward", File: "/app/model.py", Line: 12, Type: "python"},
		{Func: "Py_RunMain", Module: libpython, Type: "native"},
	}
	for _, r := range []format.Row{
		{Kind: format.KindStack, StackID: 1, Pid: 4242, StackStatus: format.StackComplete, Site: "forward (model.py:12)", Frames: python},
		{Kind: format.KindStack, StackID: 2, Pid: 4242, StackStatus: format.StackTruncated, Message: "code", Site: "launch", Frames: []format.Frame{
			{Func: "cuLaunchKernel", Module: libcuda, Type: "native"}, {Func: "launch", Module: "/tmp/numba.so", Type: "native"},
		}},
		{Kind: format.KindNote, Name: "stack_inference", StartNs: start, Message: `{"class":"launch","key":"return address","inferred":200,"checked":200,"wrong":1,"wrong_estimated":1}`},
		{Kind: format.KindLaunch, Name: "cuLaunchKernel", StartNs: start + 1, Pid: 4242, Tid: 4242, Kernel: "add", StackID: 1, StackStatus: format.StackInferred},
		{Kind: format.KindLaunch, Name: "cuLaunchKernel", StartNs: start + 2, Pid: 4242, Tid: 4243, Kernel: "mul", StackID: 2, StackStatus: format.StackTruncated},
	} {
		if err := w.Write(format.ClassOf(r.Kind), []format.Row{r}); err != nil {
			return err
		}
	}
	return nil
}

// spoil damages a recording: kind names the damage.
func spoil(ts *testscript.TestScript, path, kind string) {
	data, err := os.ReadFile(path)
	ts.Check(err)
	switch kind {
	case "truncated":
		data = data[:len(data)*2/3]
	case "foreign":
		data = []byte(strings.ReplaceAll(string(data), "gpurec.schema", "someone.else!"))
	case "newer":
		schema := fmt.Sprintf("%d.%d", format.SchemaMajor, format.SchemaMinor)
		data = []byte(strings.ReplaceAll(string(data), schema, "9.2"))
	}
	ts.Check(os.WriteFile(path, data, 0o600))
}

// mountDisk implements the script command "disk FOLDER OPTIONS": it mounts a tmpfs with options
// such as "size=2m" or "ro".
func mountDisk(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	flags := uintptr(0)
	options := args[1]
	if options == "ro" {
		flags, options = syscall.MS_RDONLY, ""
	}
	ts.Check(syscall.Mount("tmpfs", dir, "tmpfs", flags, options))
	ts.Defer(func() { ts.Check(syscall.Unmount(dir, 0)) })
}

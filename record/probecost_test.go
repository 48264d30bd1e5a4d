//go:build linux && amd64

package record

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/symbolize"
)

// Benchmarks of the cost of probes: the kernel's part and the BPF program's part.
// scripts/bench-probes.sh runs all of them, here or on a machine with a GPU.

// worker is a program that repeats an operation as often as do requests.
type worker struct {
	cmd    *exec.Cmd
	stdin  io.Writer
	stdout *bufio.Reader
}

// startWorker compiles a program of testdata and starts it.
func startWorker(b testing.TB, source string, env []string, args ...string) *worker {
	b.Helper()
	if err := privilege.CheckAttach(privilege.AttachAuto); err != nil {
		b.Skip(err.Error())
	}
	program := filepath.Join(b.TempDir(), source)
	if out, err := exec.Command("cc", "-O2", "-fcf-protection=none", "-o", program, filepath.Join("testdata", source+".c"), "-ldl").
		CombinedOutput(); err != nil {
		b.Skipf("no C compiler: %v: %s", err, out)
	}
	w := &worker{cmd: exec.Command(program, args...)}
	w.cmd.Env, w.cmd.Stderr = append(os.Environ(), env...), os.Stderr
	stdin, err := w.cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := w.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	w.stdin, w.stdout = stdin, bufio.NewReader(stdout)
	if err := w.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		_ = w.cmd.Wait()
	})
	w.do(b, 1)
	return w
}

// do makes the program repeat its operation n times.
func (w *worker) do(b testing.TB, n int) {
	b.Helper()
	fmt.Fprintln(w.stdin, n)
	if line, err := w.stdout.ReadString('\n'); err != nil {
		b.Fatalf("%s: %q, %v", w.cmd.Path, line, err)
	}
}

func (w *worker) bench(b *testing.B) { w.do(b, b.N) }

// noProgram loads a BPF program that returns at once.
func noProgram(b *testing.B, attach ebpf.AttachType) *ebpf.Program {
	b.Helper()
	p, err := ebpf.NewProgram(
		&ebpf.ProgramSpec{
			Type:         ebpf.Kprobe,
			AttachType:   attach,
			License:      "GPL",
			Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
		},
	)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	return p
}

// functionsOf returns the file offsets of the functions of a file whose names have a prefix.
func functionsOf(b *testing.B, path, prefix string, n int) (offsets []uint64) {
	b.Helper()
	file, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		b.Fatal(err)
	}
	object, err := symbolize.NewObject(file, info.Size())
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		name := prefix
		if n > 1 {
			name = fmt.Sprintf("%s%03d", prefix, i)
		}
		function, ok := object.Find(name)
		offset, mapped := object.FileOffset(function.Start)
		if !ok || !mapped {
			b.Fatalf("%s has no %s", path, name)
		}
		offsets = append(offsets, offset)
	}
	return offsets
}

// BenchmarkProbe calls an empty function, by the kind of its first instruction: without a probe,
// with a probe whose BPF program returns at once, and with an additional return probe.
func BenchmarkProbe(b *testing.B) {
	for _, instruction := range []string{"push", "nop5", "nop", "endbr64", "sub", "mov", "jump", "call"} {
		b.Run(instruction, func(b *testing.B) {
			w := startWorker(b, "instructions", nil, instruction)
			if privilege.AttachAuto.ResolveForKernel() != privilege.AttachMulti {
				b.Skip("this kernel has no uprobe_multi")
			}
			b.Run("bare", w.bench)
			offsets := functionsOf(b, w.cmd.Path, "at_"+instruction, 1)
			executable, err := link.OpenExecutable(w.cmd.Path)
			if err != nil {
				b.Fatal(err)
			}
			program := noProgram(b, ebpf.AttachTraceUprobeMulti)
			entry, err := executable.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: offsets})
			if err != nil {
				b.Fatal(err)
			}
			defer entry.Close()
			b.Run("entry", w.bench)
			exit, err := executable.UretprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: offsets})
			if err != nil {
				b.Fatal(err)
			}
			defer exit.Close()
			b.Run("return", w.bench)
		})
	}
}

// BenchmarkAttach attaches probes to functions of a running program and removes them.
func BenchmarkAttach(b *testing.B) {
	counts := []int{100, 300, 600}
	if testing.Short() {
		counts = counts[:1]
	}
	w := startWorker(b, "instructions", nil, "push")
	executable, err := link.OpenExecutable(w.cmd.Path)
	if err != nil {
		b.Fatal(err)
	}
	for _, how := range []privilege.AttachMethod{privilege.AttachMulti, privilege.AttachPerf} {
		if how == privilege.AttachMulti && privilege.AttachAuto.ResolveForKernel() != privilege.AttachMulti ||
			how == privilege.AttachPerf && testing.Short() {
			continue
		}
		for _, n := range counts {
			b.Run(
				fmt.Sprintf("%s/%d", how, n),
				func(b *testing.B) { benchmarkAttach(b, executable, how, functionsOf(b, w.cmd.Path, "many_", n)) },
			)
		}
	}
}

func benchmarkAttach(b *testing.B, executable *link.Executable, how privilege.AttachMethod, offsets []uint64) {
	attachType := ebpf.AttachNone
	if how == privilege.AttachMulti {
		attachType = ebpf.AttachTraceUprobeMulti
	}
	program := noProgram(b, attachType)
	var attach, detach time.Duration
	for b.Loop() {
		begin := time.Now()
		var links []link.Link
		place := func(l link.Link, err error) {
			if err != nil {
				b.Fatal(err)
			}
			links = append(links, l)
		}
		if how == privilege.AttachMulti {
			place(executable.UprobeMulti(nil, program, &link.UprobeMultiOptions{Addresses: offsets}))
		} else {
			for _, at := range offsets {
				place(executable.Uprobe("", program, &link.UprobeOptions{Address: at}))
			}
		}
		attach += time.Since(begin)
		begin = time.Now()
		for _, l := range links {
			if err := l.Close(); err != nil {
				b.Fatal(err)
			}
		}
		detach += time.Since(begin)
	}
	b.ReportMetric(float64(attach.Milliseconds())/float64(b.N), "attach-ms")
	b.ReportMetric(float64(detach.Milliseconds())/float64(b.N), "detach-ms")
}

// simcudaEnv returns the environment in which a worker uses simcuda, if it is built; otherwise it uses the GPU.
func simcudaEnv(b testing.TB) []string {
	b.Helper()
	if _, err := os.Stat(filepath.Join(simcudaDir, "libcuda.so.1")); err != nil {
		return nil
	}
	dir, err := filepath.Abs(simcudaDir)
	if err != nil {
		b.Fatal(err)
	}
	return []string{
		"LD_LIBRARY_PATH=" + dir,
		"SIMCUDA_TIME=off",
		"SIMCUDA_STATE=" + filepath.Join(b.TempDir(), "state"),
	}
}

// BenchmarkKernelArgs measures the price of the arguments of a launch: it launches a kernel with five parameters, in
// recordings with and without --kernel-args, in turn. A metric is the median of the rounds, and price_ns that of the
// differences in a round. bpf_ns/run is the kernel's own measurement of a run of a BPF program. Times are CPU time of the program, with that of probes, and without that of other programs.
func BenchmarkKernelArgs(b *testing.B) {
	rounds, launches := 9, 100_000
	if testing.Short() {
		rounds, launches = 1, 2_000
	}
	w := startWorker(b, "launches", simcudaEnv(b), "values")
	modes := []struct {
		name string
		args int
	}{{"off", 0}, {"kept", 16}, {"all", AllLaunches}}
	times, programs := make(map[string][]float64), make(map[string][]float64)
	for range rounds {
		for _, m := range modes {
			opt := DefaultOptions()
			opt.Pids, opt.Output = []int{w.cmd.Process.Pid}, filepath.Join(b.TempDir(), "r.parquet")
			opt.Stacks, opt.NVMLInterval, opt.MaxOverheadPct, opt.Force = probe.StacksOff, 0, 0, true
			opt.KernelArgs = m.args
			result := recorded(b, opt, func() {
				w.do(b, launches/10) // the first launches fill caches
				begin := w.cpuNs(b)
				w.do(b, launches)
				times[m.name] = append(times[m.name], float64(w.cpuNs(b)-begin)/float64(launches))
			})
			cost := result.Meta.Cost
			programs[m.name] = append(programs[m.name], float64(cost.BPFRunNs)/float64(cost.BPFRuns))
		}
	}
	for _, m := range modes {
		b.ReportMetric(medianOf(times[m.name]), m.name+"_ns/launch")
		b.ReportMetric(medianOf(programs[m.name]), m.name+"_bpf_ns/run")
		b.ReportMetric(slices.Min(programs[m.name]), m.name+"_bpf_min_ns/run")
		b.ReportMetric(slices.Min(times[m.name]), m.name+"_min_ns/launch")
		var prices []float64
		for i, ns := range times[m.name] {
			prices = append(prices, ns-times["off"][i])
		}
		if m.args != 0 {
			b.ReportMetric(medianOf(prices), m.name+"_price_ns")
		}
	}
}

// cpuNs returns the CPU time of the program's thread in ns.
func (w *worker) cpuNs(b *testing.B) (ns int64) {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", w.cmd.Process.Pid))
	if err == nil {
		_, err = fmt.Sscan(string(text), &ns)
	}
	if err != nil {
		b.Fatal(err)
	}
	return ns
}

// medianOf returns the median of values.
func medianOf(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// BenchmarkLaunch launches an empty kernel, and synchronizes every 200 launches: without and with a
// recording.
func BenchmarkLaunch(b *testing.B) {
	w := startWorker(b, "launches", simcudaEnv(b))
	modes := []struct {
		name    string
		stacks  string
		returns bool
	}{{"off", probe.StacksOff, false}, {"fp", probe.StacksFP, false}, {"auto", probe.StacksAuto, false}, {"full", probe.StacksFull, false}, {"auto,keep-returns", probe.StacksAuto, true}}
	if testing.Short() {
		modes = modes[:1]
	}
	b.Run("bare", w.bench)
	for _, m := range modes {
		opt := DefaultOptions()
		opt.Pids, opt.Output = []int{w.cmd.Process.Pid}, filepath.Join(b.TempDir(), "r.parquet")
		opt.Stacks, opt.KeepReturns = m.stacks, m.returns
		recorded(b, opt, func() {
			// Warm up: the stack cache fills, and return probes of launches are removed.
			for begin := time.Now(); !testing.Short() && time.Since(begin) < 4*time.Second; {
				w.do(b, 2000)
			}
			b.Run(m.name, w.bench)
		})
		b.Run("bare", w.bench)
	}
}

// recorded runs do during a recording, and returns its result.
func recorded(b *testing.B, opt Options, do func()) Result {
	b.Helper()
	s, err := Start(opt)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx)
		ended <- err
	}()
	do()
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	result, err := s.Finish()
	if err != nil {
		b.Error(err)
	}
	if err := s.Close(); err != nil {
		b.Error(err)
	}
	return result
}

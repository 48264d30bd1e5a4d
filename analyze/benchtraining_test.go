package analyze_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// The benchmark recording is that of a training job. Each step of 30 ms has 3,520 rows from 2,000
// stacks of 40 frames: 60 % events of PyTorch's allocator and 31 % launches, between gpt_train and
// mlp_small of docs/benchmarks/overhead.md. Segments have 3 s. Returns of launches are recorded for
// 1 second in 10, as at that rate in a real recording. One step in ten leaks. NVML is sampled at
// 10 Hz.
const (
	benchStep     = 30 * analyzetest.Ms
	benchAllocs   = 700 // blocks per step; each has three events
	benchLaunches = 1090
	benchCopies   = 60
	benchMemsets  = 20
	benchSyncs    = 10
	benchOthers   = 40
	benchDriver   = 100 // allocs and frees per step of a library that calls the driver directly
	benchStacks   = 2000
	benchRows     = 3*benchAllocs + benchLaunches + benchCopies + benchMemsets + benchSyncs + benchOthers + 2*benchDriver
)

// benchTraining returns the path of a recording of a training job with at least n events. The file
// is kept in build/bench. A process of its own writes it, so that writing does not count in the
// measured time and memory.
func benchTraining(b testing.TB, n int) string {
	b.Helper()
	return benchTrainingFile(b, n, "")
}

// benchTrainingWithWords is benchTraining with progress words, as `--gpu-time=auto` records them.
func benchTrainingWithWords(b testing.TB, n int) string {
	b.Helper()
	return benchTrainingFile(b, n, "-words")
}

// benchTrainingWithHost is benchTrainingWithWords with rows of class host.
func benchTrainingWithHost(b testing.TB, n int) string {
	b.Helper()
	return benchTrainingFile(b, n, "-words-host")
}

// benchTrainingFile writes a recording with the additional rows that with names.
func benchTrainingFile(b testing.TB, n int, with string) string {
	b.Helper()
	path := filepath.Join("..", "build", "bench", fmt.Sprintf("training-%d%s.parquet", n, with))
	if _, err := os.Stat(path); err == nil {
		return path
	}
	writer := exec.Command(os.Args[0], "-test.run=^TestWriteBenchTraining$", "-test.timeout=0")
	writer.Env = append(os.Environ(), "GPUREC_BENCH_WRITE="+path, fmt.Sprint("GPUREC_BENCH_EVENTS=", n),
		"GPUREC_BENCH_WITH="+with)
	if out, err := writer.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return path
}

// TestWriteBenchTraining writes the recording of benchTraining in its own process.
func TestWriteBenchTraining(t *testing.T) {
	testclass.Unit(t)
	path := os.Getenv("GPUREC_BENCH_WRITE")
	if path == "" {
		// a small file checks that the writer works
		path = filepath.Join(t.TempDir(), "training.parquet")
	}
	n, err := strconv.Atoi(cmp.Or(os.Getenv("GPUREC_BENCH_EVENTS"), "20000"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	writeTraining(t, path, n, os.Getenv("GPUREC_BENCH_WITH"))
	tl, err := timeline.Open(analyzetest.OpenRecording(t, path))
	if err != nil {
		t.Fatal(err)
	}
	if got := tl.Scan.Events + tl.Scan.AllocatorEvents; got < int64(n) {
		t.Errorf("%d events of %d", got, n)
	}
	if n > 100_000 {
		return
	}
	states, err := state.ReadAllocators(tl, 0)
	if err != nil || len(states) != 1 || states[0].Disagreed > 0 || states[0].LostFrees+states[0].UnmatchedFrees > 0 {
		t.Errorf("%v, %d allocators whose totals do not match the model", err, len(states))
	}
}

// trainingWriter writes the same step again and again, with new times and addresses.
type trainingWriter struct {
	t testing.TB
	w *format.Writer
	r *rand.Rand
	// step has the rows of one step in the classes memory, call and allocator, each in order of
	// return. Times count from the start of the step.
	step []format.Row
	// The leak is a block of 2 MiB, in segments of ten blocks.
	leaked, leakedReserved int64
	rows                   [3][]format.Row
	gpu                    *benchGPU  // nil without progress words
	host                   *benchHost // nil without rows of class host
}

func writeTraining(t testing.TB, path string, n int, with string) {
	w, err := format.Create(path, format.Options{Force: true})
	if err != nil {
		t.Fatal(err)
	}
	tw := &trainingWriter{t: t, w: w, r: rand.New(rand.NewPCG(3, 3))}
	tw.write(format.ClassStack, benchStackRows())
	steps := (n + benchRows - 1) / benchRows
	seconds := int64(steps+10)*benchStep/analyzetest.Second + 1
	meta := format.Meta{
		GpurecVersion: "v0.0.0-bench",
		StartNs:       analyzetest.Epoch,
		EndNs:         analyzetest.Epoch + seconds*analyzetest.Second,
		Stacks:        "auto",
		Attach:        "uprobe_multi",
	}
	if strings.Contains(with, "-words") {
		tw.gpu = newBenchGPU(tw)
	}
	if strings.Contains(with, "-host") {
		tw.host = newBenchHost(tw)
	}
	tw.facts(seconds)
	tw.prepare()
	for i := range steps {
		tw.repeat(int64(i))
		if tw.host != nil {
			tw.host.step(int64(i) * benchStep)
		}
		if i%100 == 99 {
			if err := w.Rotate(meta); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Finish(meta); err != nil {
		t.Fatal(err)
	}
}

func (tw *trainingWriter) write(c format.Class, rows []format.Row) {
	if err := tw.w.Write(c, rows); err != nil {
		tw.t.Fatal(err)
	}
}

func benchStackRows() []format.Row {
	var stacks []format.Row
	for i := range int32(benchStacks) {
		frames := make([]format.Frame, 40)
		for k := range frames {
			frames[k] = format.Frame{
				Func:   fmt.Sprintf("function_%d_%d", i%50, k),
				Module: "/app/train.so",
				Addr:   int64(k),
				Type:   "native",
			}
		}
		frames[10] = format.Frame{
			Func: fmt.Sprintf("layer_%d", i),
			File: "/app/model.py",
			Line: i + 1,
			Type: query.FrameTypePython,
		}
		stacks = append(
			stacks,
			format.Row{
				Kind:        format.KindStack,
				StackID:     i + 1,
				StackStatus: format.StackComplete,
				Site:        benchSite(i + 1),
				Frames:      frames,
			},
		)
	}
	return stacks
}

func benchSite(stack int32) string { return fmt.Sprintf("layer_%d (model.py:%d)", stack-1, stack) }

func (tw *trainingWriter) facts(seconds int64) {
	facts := []format.Row{
		{
			Kind:    format.KindProcess,
			Name:    "python3",
			Pid:     42,
			StartNs: analyzetest.Epoch,
			Device:  -1,
			Message: `{"exe":"/usr/bin/python3.12"}`,
		},
		{Kind: format.KindDevice, Name: "NVIDIA H200", Bytes: 140 << 30, StartNs: analyzetest.Epoch},
		{
			Kind:    format.KindNote,
			Name:    format.NoteAllocator,
			Pid:     42,
			Device:  -1,
			Message: `{"allocator":"torch","library":"libc10_cuda.so"}`,
		},
	}
	for i, name := range []string{"python3", "pt_autograd_0", "pt_data_pin"} {
		facts = append(
			facts,
			format.Row{
				Kind:    format.KindThread,
				Name:    name,
				Pid:     42,
				Tid:     42 + int32(i),
				StartNs: analyzetest.Epoch,
				Device:  -1,
			},
		)
	}
	tw.write(format.ClassFact, facts)
	var samples []format.Row
	for at := int64(0); at < seconds*analyzetest.Second; at += 100 * analyzetest.Ms {
		for m, metric := range []string{
			catalog.MetricMemoryUsed,
			catalog.MetricMemoryTotal,
			"utilization_gpu_pct",
			"utilization_memory_pct",
			"power_w",
			"temperature_c",
			"clock_sm_mhz",
			"clock_memory_mhz",
			"pcie_tx_bytes_per_s", "pcie_rx_bytes_per_s",
		} {
			samples = append(
				samples,
				format.Row{
					Kind:    format.KindNVML,
					Name:    metric,
					StartNs: analyzetest.Epoch + at,
					Value:   float64(int64(m+1) * (40 + at/analyzetest.Second%7)),
				},
			)
		}
		if len(samples) > 1000 {
			tw.write(format.ClassSample, samples)
			samples = samples[:0]
		}
	}
	tw.write(format.ClassSample, samples)
}

// prepare adds the program's start and creates the step. It takes the second of two equal steps,
// for which PyTorch's allocator already has all its memory.
func (tw *trainingWriter) prepare() {
	recording := analyzetest.NewTestRecording(tw.t)
	world := analyzetest.NewTorchAllocator(recording, rand.New(rand.NewPCG(1, 1)), 42, 0, analyzetest.TorchConf{})
	world.Capacity, world.Driver = 1<<40, true
	for i := range int32(400) {
		b := world.AllocBlock(int64(i%8+1)<<20, analyzetest.TorchSegment{})
		analyzetest.SetStackAndSite(b.Row, 1990+i%10, benchSite(1990+i%10))
	}
	trainingAllocs(world, rand.New(rand.NewPCG(2, 2)))
	started := len(recording.Rows)
	trainingAllocs(world, rand.New(rand.NewPCG(2, 2)))
	for i, row := range recording.Rows[:started] {
		row.StartNs, row.DurNs, row.Tid = analyzetest.Epoch+int64(
			i,
		)*10*analyzetest.Us, min(
			row.DurNs,
			5*analyzetest.Us,
		), 42
		tw.rows[trainingClass(row)] = append(tw.rows[trainingClass(row)], *row)
	}
	tw.flush()
	for i, row := range recording.Rows[started:] {
		row.StartNs, row.Tid = int64(i)*(benchStep-2*analyzetest.Ms)/(3*benchAllocs), 42+row.StackID%2
		if row.Kind != format.KindAllocator || row.Name == format.AllocatorSegmentAlloc {
			tw.t.Fatalf("the second step calls the driver: %+v", *row)
		}
		tw.step = append(tw.step, *row)
	}
	tw.calls()
}

// trainingAllocs allocates and frees the blocks of one step: most live shortly, some to its end.
func trainingAllocs(world *analyzetest.TorchAllocator, r *rand.Rand) {
	first := len(world.Held)
	for range benchAllocs {
		stack := 1201 + r.Int32N(700)
		analyzetest.SetStackAndSite(
			world.AllocBlock(512<<r.IntN(14)+r.Int64N(512), analyzetest.TorchSegment{}).Row,
			stack,
			benchSite(stack),
		)
		for len(world.Held) > first+200 {
			world.FreeBlock(world.Held[first+r.IntN(len(world.Held)-first)])
		}
	}
	for len(world.Held) > first {
		world.FreeBlock(world.Held[len(world.Held)-1])
	}
}

// calls adds the driver calls of one step.
func (tw *trainingWriter) calls() {
	r := rand.New(rand.NewPCG(4, 4))
	var calls []format.Row
	for i := range benchLaunches + benchCopies + benchMemsets + benchSyncs + benchOthers + 2*benchDriver {
		row := format.Row{
			Pid:         42,
			Tid:         42,
			Context:     0x5000,
			DurNs:       2000 + r.Int64N(4000),
			StackID:     1 + r.Int32N(1200),
			StackStatus: format.StackInferred,
		}
		switch {
		case i < benchLaunches:
			row.Kind, row.Name, row.GridX, row.GridY, row.GridZ, row.BlockX, row.BlockY, row.BlockZ = format.KindLaunch, "cuLaunchKernel", 1<<r.IntN(
				12,
			), 1, 1, 128, 1, 1
			k := r.IntN(80)
			row.Function = int64(0x10000 + k)
			row.Kernel = fmt.Sprintf("void at::native::vectorized_elementwise_kernel<%d, "+
				"at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>(int, "+
				"at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)", k)
			if r.IntN(3) == 0 {
				row.Tid = 43
			}
		case i < benchLaunches+benchCopies:
			row.Kind, row.Name, row.CopyKind, row.Bytes, row.Stream = format.KindMemcpy, "cuMemcpyHtoDAsync_v2", "HtoD", 256<<r.IntN(
				14,
			), 7
			row.Ptr, row.SrcPtr, row.Tid = 0x7f1000000000+r.Int64N(1<<30), 0x7e0000000000+r.Int64N(1<<30), 44
		case i < benchLaunches+benchCopies+benchMemsets:
			row.Kind, row.Name, row.Bytes, row.Ptr = format.KindMemset, "cuMemsetD8Async", 4096, 0x7f1000000000+r.Int64N(
				1<<30,
			)
		case i < benchLaunches+benchCopies+benchMemsets+benchSyncs:
			row.Kind, row.Name, row.DurNs, row.StackStatus = format.KindSync, "cuStreamSynchronize", 10*analyzetest.Us, format.StackComplete
		case i < benchLaunches+benchCopies+benchMemsets+benchSyncs+benchOthers:
			row.Kind, row.Name, row.Stream = format.KindAPI, "cuEventRecord", 7
		default:
			continue
		}
		row.Site = benchSite(row.StackID)
		calls = append(calls, row)
	}
	r.Shuffle(len(calls), func(i, k int) { calls[i], calls[k] = calls[k], calls[i] })
	for i := range benchDriver {
		row := format.Row{
			Kind:        format.KindAlloc,
			Name:        "cuMemAllocAsync",
			MemoryKind:  format.MemoryAsync,
			Pid:         42,
			Tid:         43,
			Context:     0x5000,
			DurNs:       1500,
			Ptr:         0x7d0000000000 + int64(i)<<20,
			Bytes:       1024 << (i % 8),
			StackID:     1901 + int32(i)%20,
			StackStatus: format.StackComplete,
			Site:        benchSite(1901 + int32(i)%20),
		}
		free := row
		free.Kind, free.Name, free.Bytes = format.KindFree, "cuMemFreeAsync", 0
		k := (i + 1) * len(calls) / (benchDriver + 1)
		calls = slices.Insert(calls, min(k, len(calls)), row, free)
	}
	for i := range calls {
		calls[i].StartNs = int64(i) * (benchStep - 2*analyzetest.Ms) / int64(len(calls))
	}
	tw.step = append(tw.step, calls...)
}

func trainingClass(r *format.Row) int { return int(format.ClassOf(r.Kind) - format.ClassMemory) }

// repeat writes the rows of the training step number i.
func (tw *trainingWriter) repeat(i int64) {
	begin := analyzetest.Epoch + 100*analyzetest.Ms + i*benchStep
	timed := i*benchStep/analyzetest.Second%10 == 0
	if i%10 == 0 {
		tw.leak(begin-analyzetest.Ms, i)
	}
	for k := range tw.step {
		row := tw.step[k]
		row.StartNs += begin + tw.r.Int64N(2000)
		if row.Kind == format.KindAllocator {
			row.AllocatedBytes += tw.leaked
			row.ReservedBytes += tw.leakedReserved
		} else {
			row.DurNs += tw.r.Int64N(row.DurNs/2 + 1)
			row.CPU = tw.r.Int32N(16)
			if row.Kind == format.KindLaunch && !timed {
				row.DurNs, row.Flags = 0, format.FlagNoReturn
			}
			if tw.r.IntN(100_000) == 0 {
				row.Result = 700
			}
		}
		tw.rows[trainingClass(&row)] = append(tw.rows[trainingClass(&row)], row)
	}
	if tw.gpu != nil {
		tw.gpu.run(tw.rows[trainingClass(&format.Row{Kind: format.KindLaunch})])
	}
	tw.flush()
}

// flush writes the collected rows in the order in which calls returned.
func (tw *trainingWriter) flush() {
	for c := range tw.rows {
		slices.SortStableFunc(
			tw.rows[c],
			func(a, b format.Row) int { return cmp.Compare(a.StartNs+a.DurNs, b.StartNs+b.DurNs) },
		)
		tw.write(format.ClassMemory+format.Class(c), tw.rows[c])
		tw.rows[c] = tw.rows[c][:0]
	}
}

// leak adds a block that is never freed.
func (tw *trainingWriter) leak(atNs, step int64) {
	const block, segment = 2 << 20, 20 << 20
	ptr := 0x7c0000000000 + step/10*block
	row := tw.step[0] // row with the allocator's totals before the step
	row.StartNs, row.Ptr, row.Bytes, row.Tid, row.StackID, row.Site, row.StackStatus = atNs, ptr, block, 42, 2000, benchSite(
		2000,
	), format.StackComplete
	row.AllocatedBytes += tw.leaked
	row.ReservedBytes += tw.leakedReserved
	if step/10%10 == 0 {
		grown := row
		grown.Name, grown.Bytes, grown.StartNs = format.AllocatorSegmentAlloc, segment, atNs-1000
		tw.leakedReserved += segment
		grown.ReservedBytes = row.ReservedBytes + segment
		row.ReservedBytes = grown.ReservedBytes
		call := format.Row{
			Kind:        format.KindAlloc,
			Name:        "cuMemAlloc_v2",
			MemoryKind:  format.MemoryDevice,
			Pid:         42,
			Tid:         42,
			Context:     0x5000,
			StartNs:     atNs - 9000,
			DurNs:       5000,
			Ptr:         ptr,
			Bytes:       segment,
			StackID:     2000,
			StackStatus: format.StackComplete,
			Site:        benchSite(2000),
		}
		tw.rows[trainingClass(&call)] = append(tw.rows[trainingClass(&call)], call)
		tw.rows[trainingClass(&grown)] = append(tw.rows[trainingClass(&grown)], grown)
	}
	row.Name = format.AllocatorAlloc
	tw.leaked += block
	tw.rows[trainingClass(&row)] = append(tw.rows[trainingClass(&row)], row)
}

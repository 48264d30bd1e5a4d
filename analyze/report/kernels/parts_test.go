package kernels_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// addPyTorchStack adds a stack of an operator in the forward or the backward pass.
func addPyTorchStack(recording *analyzetest.TestRecording, id int32, operator string, backward bool) {
	frames := []format.Frame{{Func: "at::_ops::" + operator + "::call", Module: "libtorch_cpu.so", Type: "native"}}
	if backward {
		frames = append(
			frames,
			format.Frame{
				Func:   "torch::autograd::generated::MmBackward0::apply",
				Module: "libtorch_cpu.so",
				Type:   "native",
			},
			format.Frame{Func: "torch::autograd::Engine::thread_main", Module: "libtorch_cpu.so", Type: "native"},
		)
	} else {
		frames = append(
			frames,
			format.Frame{Func: "Linear.forward", File: "torch/nn/modules/linear.py", Line: 125, Type: "python"},
		)
	}
	recording.AddStackRow(id, format.StackComplete, "", "step (train.py:1)", frames)
}

// TestLaunchesByPart compares the numbers of launches by operator and phase with those of a random program.
func TestLaunchesByPart(t *testing.T) {
	testclass.Unit(t)
	recording, r := analyzetest.NewTestRecording(t), rand.New(rand.NewPCG(1, 2))
	operators := []string{"mm", "add_Tensor", "relu"}
	for i, operator := range operators {
		addPyTorchStack(recording, int32(2*i+1), operator, false)
		addPyTorchStack(recording, int32(2*i+2), operator, true)
	}
	want := make(map[string]map[string]int64)
	count := func(by, part string) {
		if want[by] == nil {
			want[by] = make(map[string]int64)
		}
		want[by][part]++
	}
	for i := range int64(5000) {
		id := int32(r.IntN(2*len(operators) + 1)) // 0: no stack
		launch := recording.AddLaunch(i*analyzetest.Us, 100, fmt.Sprintf("kernel%d", r.IntN(5)), int64(r.IntN(3)), id)
		launch.GridX, launch.BlockX = int32(1+r.IntN(4)), 128
		switch {
		case id == 0:
			count("operator", stack.NoOperator)
			count("phase", stack.PhaseOther)
			count("autograd", stack.NoAutogradNode)
			count("module", stack.NoModule)
			continue
		case id%2 == 0:
			count("phase", stack.PhaseBackward)
			count("autograd", "MmBackward0")
			count("module", "(backward, no module) MmBackward0")
		default:
			count("phase", stack.PhaseForward)
			count("autograd", stack.NoAutogradNode)
			count("module", "Linear")
		}
		count("operator", "aten::"+operators[(id-1)/2])
	}
	for _, by := range kernels.GroupNames() {
		report := runKernels(t, recording, query.Options{GroupBy: by})
		got := launchesByPart(t, report)
		if len(got) != len(want[by]) || len(report.Tables) != 1 {
			t.Errorf("%s: rows %v, want %v", by, got, want[by])
		}
		for part, n := range want[by] {
			if got[part] != n {
				t.Errorf("%s %s: %v launches, not %d", by, part, got[part], n)
			}
		}
	}
}

// launchesByPart returns the launches of each row of the table of parts.
func launchesByPart(t *testing.T, r *report.Report) map[string]int64 {
	t.Helper()
	found, table := make(map[string]int64), &r.Tables[0]
	for i := range table.Rows {
		row := &table.Rows[i]
		found[fmt.Sprint(table.Cell(row, "part"))] = table.Cell(row, "launches").(int64) //nolint:forcetypeassert // a count
	}
	return found
}

func TestUnknownPart(t *testing.T) {
	testclass.Unit(t)
	_, err := kernels.Run(analyzetest.NewTestRecording(t).Timeline(), query.Options{GroupBy: "colour"})
	if unknown := new(report.GroupError); !errors.As(err, &unknown) {
		t.Errorf("%v", err)
	}
}

// moduleFile is the file of PyTorch that calls modules.
const moduleFile = "/x/torch/nn/modules/module.py"

// TestGPUTimesOfModules compares the GPU time of each module path with the truth of a simulated GPU.
func TestGPUTimesOfModules(t *testing.T) {
	testclass.Unit(t)
	for _, full := range []bool{false, true} {
		j := gpuprogram.NewJob(3, gpuprogram.Plan{Full: full})
		p := j.Process(0)
		th, stream := p.Thread(), p.Stream()
		truth, launches := make(map[string]float64), make(map[string]float64)
		var path []string
		in := func(class string, line int, do func()) {
			path = append(path, class)
			th.Enter(moduleFile, "Module._wrapped_call_impl self="+class)
			th.Enter("model.py", class+".forward")
			th.Line(line)
			do()
			th.Leave()
			th.Leave()
			path = path[:len(path)-1]
		}
		launch := func(kernel string, ns int64) {
			first := len(j.Operations)
			th.Launch(stream, kernel, 64, ns)
			key := strings.Join(path, " > ") + "\n"
			for _, w := range j.Operations[first:] {
				truth[key] += float64(w.EndNs - w.StartNs)
				launches[key]++
			}
		}
		for range 200 {
			in("GPT", 10, func() {
				launch("embed", 30_000)
				for range 4 {
					in("Block", 20, func() {
						in("Attention", 30, func() { launch("attention", 90_000) })
						in("MLP", 40, func() { launch("gemm", 60_000) })
						launch("add", 20_000)
					})
				}
				in("Head", 50, func() { launch("gemm", 120_000) })
			})
			th.SynchronizeDevice()
		}
		r := runKernels(t, j.Recording(t, 0), query.Options{GroupBy: "module"})
		rows := rowsOf(t, r, "parts", "part")
		var s score
		s.compare(t, rows, truth)
		for key, n := range launches {
			if rows[key].launches != n {
				t.Errorf("%q: %.0f launches, not %.0f", key, rows[key].launches, n)
			}
		}
		if s.right != 5 || s.rows != 5 || len(rows) != 5 || len(r.Notes) > 0 {
			t.Errorf("full %v: %d of %d rows are right, notes %q", full, s.right, s.rows, r.Notes)
		}
	}
}

// TestGraphsHaveThePartsOfTheirCapture replays a graph whose kernels were captured in two modules.
func TestGraphsHaveThePartsOfTheirCapture(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for id, class := range []string{1: "Linear", 2: "Norm"} {
		if class != "" {
			recording.AddStackRow(int32(id), format.StackComplete, "", "main", analyzetest.ParseFrames(
				"model.py:3 "+class+".forward", moduleFile+":9 Module._wrapped_call_impl self="+class,
			))
		}
	}
	at := int64(0)
	call := func(kind, name string, stream, ptr, src int64) *format.Row {
		at += analyzetest.Ms
		r := recording.AddCall(kind, name, at, analyzetest.Us)
		r.Stream, r.Ptr, r.SrcPtr = stream, ptr, src
		return r
	}
	call(format.KindAPI, "cuStreamBeginCapture_v2", 7, 0, 0)
	for _, id := range []int32{1, 2, 1, 0} {
		r := call(format.KindLaunch, "cuLaunchKernel", 7, 0, 0)
		r.Kernel, r.Flags, r.StackID = "k", format.FlagCaptured, id
	}
	call(format.KindAPI, "cuStreamEndCapture", 7, 0xa1, 0)
	call(format.KindAPI, "cuGraphInstantiateWithFlags", 0, 0xb1, 0xa1)
	for range 10 {
		call(format.KindLaunch, "cuGraphLaunch", 7, 0xb1, 0).Value = 4
	}
	call(format.KindLaunch, "cuGraphLaunch", 7, 0xb1, 0).Value = 5 // one kernel is in no recorded call
	call(format.KindLaunch, "cuGraphLaunch", 7, 0xb9, 0).Value = 3 // a graph from before the recording
	r := runKernels(t, recording, query.Options{GroupBy: "module"})
	got, table := make(map[string]any), &r.Tables[0]
	for i := range table.Rows {
		row := &table.Rows[i]
		got[fmt.Sprint(table.Cell(row, "part"))] = table.Cell(row, "graph_kernels")
	}
	want := map[string]any{
		"Linear": int64(20), "Norm": int64(10), stack.NoModule: int64(10), "(in a graph, not known)": int64(8),
	}
	if !maps.Equal(got, want) {
		t.Errorf("kernels in graphs %v, want %v", got, want)
	}
}

func TestModulesWithoutClassesHaveANote(t *testing.T) {
	testclass.Unit(t)
	for frame, notes := range map[string]int{
		moduleFile + ":9 Module._wrapped_call_impl":             1,
		moduleFile + ":9 Module._wrapped_call_impl self=Linear": 0,
		"main.py:9 main": 0,
	} {
		recording := analyzetest.NewTestRecording(t)
		recording.AddStackRow(
			1,
			format.StackComplete,
			"",
			"main",
			analyzetest.ParseFrames("model.py:3 Linear.forward", frame),
		)
		recording.AddLaunch(0, 100, "k", 7, 1)
		for _, by := range []string{"module", "operator"} {
			r := runKernels(t, recording, query.Options{GroupBy: by})
			if want := notes; len(r.Notes) != want && by == "module" || len(r.Notes) > 0 && by == "operator" {
				t.Errorf("%s by %s: notes %q", frame, by, r.Notes)
			}
		}
	}
}

func TestTritonKernelsAreOperators(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	recording.AddStackRow(
		1,
		format.StackComplete,
		"",
		"main",
		analyzetest.ParseFrames("/x/triton/runtime/jit.py:3 JITFunction.run"),
	)
	for i, kernel := range []string{"triton_poi_0", "triton_red_1", "triton_poi_0"} {
		recording.AddLaunch(int64(i), 100, kernel, 7, 1)
	}
	got := launchesByPart(t, runKernels(t, recording, query.Options{GroupBy: "operator"}))
	if want := map[string]int64{"triton: triton_poi_0": 2, "triton: triton_red_1": 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

package frames_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize"
)

// lines returns a stack as text output prints it.
func lines(list []report.Frame) string {
	var b strings.Builder
	for _, f := range list {
		b.WriteString(render.FormatFrame(&f) + "\n")
	}
	return b.String()
}

func shownFrames(frameList []format.Frame, limit int, rules *query.FrameRules) []report.Frame {
	s := &stack.StackTable{Stacks: make(map[int32][]int32), About: make(map[int32]stack.StackInfo)}
	s.AddStack(&format.Row{StackID: 1, Frames: frameList}, make(map[format.Frame]int32))
	return frames.DisplayFrames(s, stack.Pair{Stack: 1}, limit, rules)
}

func TestStacksAreFolded(t *testing.T) {
	testclass.Unit(t)
	own := func(texts ...string) *query.FrameRules {
		r, err := query.ParseFrameRules(texts)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	app := analyzetest.ParseFrames("libcuda.so.1 cuMemAlloc_v2", "/app/sim step", "/app/sim std::function<void "+
		"(int)>::operator()", "/app/sim main", "libc.so.6 __libc_start_call_main", "/app/sim _start")
	for name, c := range map[string]struct {
		frames []format.Frame
		limit  int
		rules  *query.FrameRules
		want   string
	}{
		"a launch of PyTorch": {analyzetest.ForwardStack(analyzetest.LaunchFrames, analyzetest.AdditionFrames), 0, query.DefaultFrameRules, `
at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float>> [libtorch_cuda.so]
at::native::add_kernel [libtorch_cuda.so]
… 8 frames of PyTorch and CPython
Block.forward (/app/model.py:12)
… 6 frames of PyTorch and CPython
Sequential.forward (/venv/lib/python3.12/site-packages/torch/nn/modules/container.py:219)
… 6 frames of PyTorch and CPython
train_step (/app/train.py:88)
main (/app/train.py:120)
<module> (/app/train.py:131)
… 7 frames of CPython and libc
`},
		"memory of PyTorch's allocator": {analyzetest.ForwardStack(analyzetest.AllocatorFrames, nil), 5, query.DefaultFrameRules, `
… 3 frames of PyTorch
at::detail::empty_generic [libtorch_cpu.so]
at::detail::empty_cuda [libtorch_cuda.so]
at::native::empty_strided_cuda [libtorch_cuda.so]
… 4 frames of PyTorch and CPython
Block.forward (/app/model.py:12)
… 6 frames of PyTorch and CPython
Sequential.forward (/venv/lib/python3.12/site-packages/torch/nn/modules/container.py:219)
… 16 more frames
`},
		"a limit behind which all is hidden": {analyzetest.ForwardStack(analyzetest.LaunchFrames, analyzetest.AdditionFrames), 7, query.DefaultFrameRules, `
at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float>> [libtorch_cuda.so]
at::native::add_kernel [libtorch_cuda.so]
… 8 frames of PyTorch and CPython
Block.forward (/app/model.py:12)
… 6 frames of PyTorch and CPython
Sequential.forward (/venv/lib/python3.12/site-packages/torch/nn/modules/container.py:219)
… 6 frames of PyTorch and CPython
train_step (/app/train.py:88)
main (/app/train.py:120)
<module> (/app/train.py:131)
… 7 frames of CPython and libc
`},
		"a thread of the autograd engine": {analyzetest.BackwardStack(), 0, query.DefaultFrameRules, `
at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float>> [libtorch_cuda.so]
at::native::add_kernel [libtorch_cuda.so]
… 5 frames of PyTorch
torch::autograd::generated::AddBackward0::apply [libtorch_cpu.so]
… 7 frames of PyTorch, the standard library and libc
`},
		"a stripped interpreter": {analyzetest.ParseFrames(
			"libcuda.so.580.95.05 cuLaunchKernel",
			"libcudart.so.13 ",
			"libcudart.so.13 cudaLaunchKernel",
			"libtorch_cuda.so at::native::gpu_reduce_kernel<float>",
			"libtorch_cuda.so at::native::mean_kernel_cuda",
			"libtorch_cpu.so at::native::mean", "libtorch_cpu.so at::_ops::mean::redispatch", "libtorch_cpu.so "+
				"torch::autograd::VariableType::(anonymous namespace)::mean",
			"libtorch_cpu.so "+
				"c10::impl::wrap_kernel_functor_unboxed_<f>::call",
			"libtorch_cpu.so at::_ops::mean::call",
			"libtorch_python.so torch::autograd::THPVariable_mean",
			"/usr/bin/python3.12 ",
			"/usr/bin/python3.12 PyObject_Vectorcall",
			"/app/workloads.py:23 step",
			"/app/workloads.py:40 run",
			"/app/workloads.py:50 <module>",
			"<shim>:1 <interpreter trampoline>",
			"/usr/bin/python3.12 _PyEval_EvalFrameDefault",
			"/usr/bin/python3.12 PyEval_EvalCode",
			"/usr/bin/python3.12 ",
			"/usr/bin/python3.12 Py_BytesMain",
			"libc.so.6 ",
			"libc.so.6 __libc_start_main",
			"/usr/bin/python3.12 _start",
		), 0, query.DefaultFrameRules, `
at::native::gpu_reduce_kernel<float> [libtorch_cuda.so]
at::native::mean_kernel_cuda [libtorch_cuda.so]
at::native::mean [libtorch_cpu.so]
… 7 frames of PyTorch and CPython
step (/app/workloads.py:23)
run (/app/workloads.py:40)
<module> (/app/workloads.py:50)
… 8 frames of CPython and libc
`},
		"a program in C++": {app, 0, query.DefaultFrameRules, "\nstep [sim]\n… 1 frame of the standard " +
			"library\nmain [sim]\n… 2 frames of libc\n"},
		"an own rule": {app, 0, own("^step$"), "\n… 2 frames of ^step$ and the standard library\nmain [sim]\n… " +
			"2 frames of libc\n"},
		"only own rules": {app, 0, own("none", "^std::", `libc\.so`), "\ncuMemAlloc_v2 [libcuda.so.1]\nstep " +
			"[sim]\n… 1 frame of ^std::\nmain [sim]\n… 1 frame of libc\\.so\n_start [sim]\n"},
		"no rules":         {app[:2], 0, own("none"), "\ncuMemAlloc_v2 [libcuda.so.1]\nstep [sim]\n"},
		"only the default": {app[:2], 0, own("default"), "\nstep [sim]\n"},
		"files of Python":  {analyzetest.ForwardStack(analyzetest.LaunchFrames, nil), 3, own("/site-packages/", "lib(cuda|python)"), "\n… 4 frames of lib(cuda|python) and /site-packages/\nBlock.forward (/app/model.py:12)\n… 13 frames of /site-packages/ and lib(cuda|python)\ntrain_step (/app/train.py:88)\nmain (/app/train.py:120)\n… 8 more frames\n"},
		"everything hidden": {
			analyzetest.ParseFrames("libcuda.so.1 cuMemAlloc_v2", "libcudart.so.12 cudaMalloc", "libpython3.12.so.1.0 "+
				"_PyEval_EvalFrameDefault", "/usr/bin/python3 _start"), 0, query.DefaultFrameRules,
			"\ncuMemAlloc_v2 [libcuda.so.1]\n… 3 frames of CUDA and CPython\n",
		},
		"the call alone":      {analyzetest.ParseFrames("libcuda.so.1 cuMemAlloc_v2"), 0, query.DefaultFrameRules, "\ncuMemAlloc_v2 [libcuda.so.1]\n"},
		"code without a name": {analyzetest.ParseFrames("libcuda.so.1 cuMemAlloc_v2", "[jit] ", "[jit] py::step:/app/train.py", "[jit] ", "/app/sim main"), 0, query.DefaultFrameRules, "\n… 1 frame of unknown code\npy::step:/app/train.py\n… 1 frame of unknown code\nmain [sim]\n"},
		"no stack":            {nil, 0, query.DefaultFrameRules, "\n"},
	} {
		if got := "\n" + lines(shownFrames(c.frames, c.limit, c.rules)); got != c.want {
			t.Errorf("%s: got %swant %s", name, got, c.want)
		}
	}
}

func TestWhatIsPlumbing(t *testing.T) {
	testclass.Unit(t)
	for line, want := range map[string]string{
		"libcuda.so.580.95.05 ":              query.FrameOwnerCUDA,
		"/app/train __cudart516":             query.FrameOwnerCUDA,
		"/app/train cudaMemcpyAsync":         query.FrameOwnerCUDA,
		"/app/train cudaMalloc_wrapper(int)": "",
		"/x/libcublasLt.so.12 ":              query.FrameOwnerCUDA,
		"/x/libcublas.so.12 cublasGemmEx":    "",
		"/x/libnccl.so.2 ncclAllReduce":      "",
		"/usr/bin/python3.11 ":               query.FrameOwnerCPython,
		"/usr/bin/python main":               query.FrameOwnerCPython,
		"/app/pythonic main":                 "",
		"/usr/lib/libpython3.13t.so.1.0 x":   query.FrameOwnerCPython,
		"/x/_ctypes.cpython-312-x86_64-linux-gnu.so _call_function_pointer":                 query.FrameOwnerCPython,
		"/app/blender _PyEval_EvalFrameDefault.cold":                                        query.FrameOwnerCPython,
		"/app/blender Py_RunMain":                                                           query.FrameOwnerCPython,
		"/app/ext.so PyInit_ext":                                                            "",
		"/app/ext.so PyTorchStep":                                                           "",
		"libc10.so c10::Dispatcher::callBoxed":                                              query.FrameOwnerPyTorch,
		"/app/ext.so c10::impl::make_boxed_from_unboxed_functor<f>::call":                   query.FrameOwnerPyTorch,
		"/app/ext.so pybind11::cpp_function::dispatcher":                                    query.FrameOwnerPyTorch,
		"/app/ext.so my::c10::step":                                                         "",
		"libtorch_cuda.so c10d::ProcessGroupNCCL::allreduce":                                "",
		"libtorch_cuda.so at::cuda::blas::gemm<float>":                                      "",
		"libtorch_cpu.so at::_ops::mm::call":                                                query.FrameOwnerPyTorch,
		"libtorch_cpu.so at::_ops::call::name":                                              "",
		"libtorch_cpu.so torch::autograd::generated::MmBackward0::apply":                    "",
		"libtorch_cpu.so at::(anonymous namespace)::(anonymous namespace)::wrapper_CUDA_mm": query.FrameOwnerPyTorch,
		"libtorch_cpu.so ":                                                                  "",
		"/app/sim std::__invoke_impl<void, step>":                                           query.FrameOwnerStdlib,
		"/app/sim stdx::invoke":                                                             "",
		"/app/rust core::ops::function::FnOnce::call_once":                                  query.FrameOwnerStdlib,
		"libc.so.6 clone":                                                                   query.FrameOwnerLibc,
		"libc.so.6 __libc_start_main@@GLIBC_2.34":                                           query.FrameOwnerLibc,
		"libc.so.6 ":                       query.FrameOwnerLibc,
		"libc.so.6 qsort":                  "",
		"/app/libctrain.so ":               "",
		"/app/sim _starting":               "",
		"[jit] ":                           query.FrameOwnerUnknown,
		"[jit] step":                       "",
		"/app/train.py:1 _start":           "",
		"/app/train.py:1 main":             "",
		"/app/train.py:1 Model._call_impl": "",
		"/app/module.py:1 _call_impl":      "",
		"/app/torch_utils/nn/modules/module.py:1 _call_impl":                              "",
		"/app/threading.py:1 run":                                                         "",
		"/usr/lib/python3.12/threading.py:1073 Thread._bootstrap":                         query.FrameOwnerCPython,
		"/usr/lib/python3.12/site-packages/mine/threading.py:1 run":                       "",
		"<frozen runpy>:198 _run_module_as_main":                                          query.FrameOwnerCPython,
		"runpy.py:198 _run_module_as_main":                                                query.FrameOwnerCPython,
		"_bootstrap.py:1360 _find_and_load":                                               query.FrameOwnerCPython,
		"<shim>:1 <interpreter trampoline>":                                               query.FrameOwnerCPython,
		"/app/runpy.py:1 run":                                                             "",
		"<string>:1 <module>":                                                             "",
		"/app/train.py:1 <interpreter trampoline>":                                        query.FrameOwnerCPython,
		analyzetest.TorchDir + "nn/modules/module.py:1562 Module._call_impl":              query.FrameOwnerPyTorch,
		analyzetest.TorchDir + "nn/modules/module.py:1000 Module.to":                      "",
		analyzetest.TorchDir + "nn/modules/linear.py:125 Linear.forward":                  "",
		analyzetest.TorchDir + "_ops.py:1061 OpOverloadPacket.__call__":                   query.FrameOwnerPyTorch,
		analyzetest.TorchDir + "utils/_contextlib.py:116 context_decorator.<locals>.deco": query.FrameOwnerPyTorch,
		analyzetest.TorchDir + "_tensor.py:521 Tensor.backward":                           "",
		// Names as linkers write them.
		"libtorch_cuda.so " + symbolize.Demangle("_ZN2at12_GLOBAL__N_1L23wrapper_CUDA_add_TensorERKNS_6TensorES3_RKN3c106ScalarE"):                                                             query.FrameOwnerPyTorch,
		"libtorch_cpu.so " + symbolize.Demangle("_ZThn16_N5torch8autograd6python12PythonEngine11thread_initEiRKSt10shared_ptrINS0_10ReadyQueueEEb"):                                            query.FrameOwnerPyTorch,
		"libtorch_cuda.so " + symbolize.Demangle("_ZN2at6native15gpu_kernel_implIZZZNS0_15add_kernel_cudaERNS_18TensorIteratorBaseERKN3c106ScalarEENKUlvE_clEvENKUlvE0_clEvEUlffE_EEvS3_RKT_"): "",
	} {
		f := analyzetest.ParseFrames(line)[0]
		if of, hidden := query.DefaultFrameRules.HidesFrame(&f); hidden != (want != "") || hidden && of != want {
			t.Errorf("%s: hidden %v (%s), want %q", line, hidden, of, want)
		}
	}
}

func TestFrameRulesThatAreWrong(t *testing.T) {
	testclass.Unit(t)
	var wrong *query.FrameRuleError
	if _, err := query.ParseFrameRules([]string{"none", "("}); !errors.As(err, &wrong) || wrong.Rule != "(" {
		t.Error(err)
	}
}

// TestProfileLeavesOutFramesThatAreAskedFor checks that a profile has all frames except those that a
// filter hides.
func TestProfileLeavesOutFramesThatAreAskedFor(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	r := recording.AddRow(format.Row{Kind: format.KindStack, StackID: 1, StackStatus: format.StackComplete})
	r.Frames = analyzetest.ForwardStack(analyzetest.AllocatorFrames, nil)
	analyzetest.SetStackAndSite(recording.AddAlloc(analyzetest.Second, 1, 0x1000, analyzetest.Mib), 1, "")
	tl := recording.Timeline()
	count := func(rules *query.FrameRules) int {
		p, _, _, err := pprof.BuildHeapProfile(tl, query.Options{Hide: rules})
		if err != nil {
			t.Fatal(err)
		}
		return len(p.Sample[0].Location)
	}
	if all, few := count(
		nil,
	), count(
		query.DefaultFrameRules,
	); all != len(r.Frames) ||
		few != len(report.VisibleFrames(shownFrames(r.Frames, 0, query.DefaultFrameRules))) {
		t.Errorf("%d frames and %d", all, few)
	}
}

package analyzetest

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// AddStackRow adds a stack with the given frames.
func (recording *TestRecording) AddStackRow(id int32, status, reason, site string, frames []format.Frame) {
	recording.AddRow(
		format.Row{
			Kind:        format.KindStack,
			Pid:         42,
			StackID:     id,
			StackStatus: status,
			Message:     reason,
			Site:        site,
			Device:      -1,
			Frames:      frames,
		},
	)
}

// SetStackStatus sets the stack of a call.
func SetStackStatus(r *format.Row, stack int32, status string) *format.Row {
	r.StackID, r.StackStatus = stack, status
	return r
}

// PytorchStacksRecording returns a recording with stacks in every state.
func PytorchStacksRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.AddRow(format.Row{Kind: format.KindProcess, Name: "python3", Pid: 42, StartNs: Epoch, Device: -1})
	recording.AddRow(
		format.Row{Kind: format.KindNote, Name: "attach", Message: "a library was attached to late", StartNs: Epoch},
	)
	recording.AddRow(
		format.Row{
			Kind:    format.KindNote,
			Name:    format.NoteStackInference,
			StartNs: Epoch,
			Message: `{"class":"launch","key":"call, then Python frames","inferred":930,"checked":640,"wrong":2,"wrong_estimated":62,"busy":1}`,
		},
	)
	recording.AddRow(
		format.Row{
			Kind:    format.KindNote,
			Name:    format.NoteStackInference,
			StartNs: Epoch,
			Message: `{"class":"copy","key":"call","inferred":6,"checked":10,"wrong":5}`,
		},
	)
	recording.AddRow(
		format.Row{
			Kind:    format.KindNote,
			Name:    format.NoteStackInference,
			StartNs: Epoch + 1,
			Message: `{"class":"copy","key":"call","inferred":6,"checked":60,"wrong":0}`,
		},
	)
	add, mul := ForwardStack(LaunchFrames, AdditionFrames), BackwardStack()
	numba := ParseFrames("libcuda.so.1 cuLaunchKernel", "/tmp/numba.so launch", "[jit] ")
	late := ParseFrames(
		"libcuda.so.1 cuMemcpyHtoDAsync_v2",
		"libcudart.so.12 cudaMemcpyAsync",
		"/x/libdali.so dali::Copy",
	)
	recording.AddStackRow(1, format.StackComplete, "", "Block.forward (model.py:12)", add)
	recording.AddStackRow(2, format.StackComplete, "", "", mul)
	recording.AddStackRow(
		3,
		format.StackComplete,
		"",
		"Block.forward (model.py:12)",
		ForwardStack(AllocatorFrames, nil),
	)
	recording.AddStackRow(4, format.StackTruncated, format.TruncationCode, "launch", numba)
	recording.AddStackRow(5, format.StackTruncated, format.TruncationMapping, "dali::Copy", late)
	recording.AddStackRow(6, format.StackTruncated, format.TruncationMapping, "dali::Copy", late[:2])
	recording.AddStackRow(
		7,
		format.StackTruncated,
		"",
		"step (deep.py:5)",
		ParseFrames("libcuda.so.1 cuLaunchKernel", "/app/deep.py:5 step"),
	)
	recording.AddStackRow(
		8,
		format.StackFramePointer,
		"",
		"load",
		ParseFrames("libcuda.so.1 cuMemAlloc_v2", "/app/load load"),
	)
	for i := range int64(1000) {
		l := SetStackStatus(
			recording.AddCall(format.KindLaunch, "cuLaunchKernel", Second+i*20*Ms, 5*Us),
			1+int32(i%2),
			format.StackInferred,
		)
		l.Kernel, l.Stream = []string{"add", "mul"}[i%2], 7*(i%2)
		if i < 64 {
			l.StackStatus = format.StackComplete
		}
	}
	for i := range int64(20) {
		SetStackStatus(recording.AddAlloc(2*Second+i*Ms, Us, 0x7f0000000000+i*Mib, Mib), 3, format.StackComplete)
		SetStackStatus(recording.AddCall(format.KindAPI, "cuCtxGetCurrent", 2*Second+i*Ms, 1), 3, format.StackParent)
		SetStackStatus(
			recording.AddCall(format.KindLaunch, "cuLaunchKernel", 3*Second+i*Ms, Us),
			4,
			format.StackTruncated,
		)
		SetStackStatus(recording.AddCall(format.KindMemcpy, "cuMemcpyHtoDAsync_v2", 4*Second+i*Ms, Us), 5+int32(i%3), format.StackTruncated).Tid = 43
	}
	SetStackStatus(recording.AddAlloc(9*Second, Us, 0x7e0000000000, Mib), 8, format.StackFramePointer)
	recording.AddCall(format.KindSync, "cuCtxSynchronize", 10*Second, Us)
	// the row of this stack was lost
	SetStackStatus(recording.AddCall(format.KindSync, "cuCtxSynchronize", 11*Second, Us), 99, format.StackComplete)
	return recording
}

// TorchDir is PyTorch's folder in simulated stacks.
const TorchDir = "/venv/lib/python3.12/site-packages/torch/"

// libraryFolders maps prefixes of libraries in simulated stacks to their folders.
var libraryFolders = map[string]string{
	"libcuda": "/usr/lib/x86_64-linux-gnu/", "libcudart": "/venv/lib/python3.12/site-packages/nvidia/cuda_runtime/lib/",
	"libtorch": TorchDir + "lib/", "libc10": TorchDir + "lib/", "libpython": "/usr/lib/",
	"libc.so": "/usr/lib/x86_64-linux-gnu/", "libstdc++": "/usr/lib/x86_64-linux-gnu/",
}

var pythonFramePattern = regexp.MustCompile(`^(\S+\.py|<frozen \w+>|<string>|<shim>):(\d+) (.+)$`)

// ParseFrames returns the frames that lines describe, innermost first: "FILE.py:LINE FUNCTION" for
// Python, also with " self=CLASS", "MODULE FUNCTION" for native code, "[jit] FUNCTION" for code without a file. A frame
// without a function has no name.
func ParseFrames(lines ...string) []format.Frame {
	var frames []format.Frame
	for i, line := range lines {
		if m := pythonFramePattern.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[2])
			function, class, _ := strings.Cut(m[3], " self=")
			frames = append(
				frames,
				format.Frame{Func: function, File: m[1], Line: int32(n), Type: "python", SelfClass: class},
			)
			continue
		}
		module, function, _ := strings.Cut(line, " ")
		f := format.Frame{
			Func:       function,
			SystemName: function,
			Module:     module,
			Addr:       int64(0x1000 + 16*i),
			Type:       "native",
		}
		if module == "[jit]" {
			f.Module, f.Type = "", "jit"
		}
		longest := "" // libcuda is also a prefix of libcudart
		for prefix, dir := range libraryFolders {
			if strings.HasPrefix(module, prefix) && len(prefix) > len(longest) {
				longest, f.Module = prefix, dir+module
			}
		}
		frames = append(frames, f)
	}
	return frames
}

// Parts of stacks of CPython 3.12 and PyTorch 2.x, innermost first.
var (
	// LaunchFrames is the innermost part of a stack of a kernel launch.
	LaunchFrames = []string{"libcuda.so.580.95.05 cuLaunchKernel", "libcudart.so.12 cudaLaunchKernel"}
	// AdditionFrames is the part of a stack from the addition of two tensors to its Python binding.
	AdditionFrames = []string{
		"libtorch_cuda.so at::native::gpu_kernel_impl_nocast<at::native::CUDAFunctor_add<float>>",
		"libtorch_cuda.so at::native::add_kernel",
		"libtorch_cuda.so at::(anonymous namespace)::wrapper_CUDA_add_Tensor",
		"libtorch_cuda.so " +
			"c10::impl::wrap_kernel_functor_unboxed_<c10::impl::detail::WrapFunctionIntoFunctor_<c10::CompileTimeFunctionPointer<at::Tensor (at::Tensor const&, at::Tensor const&, c10::Scalar const&), &at::(anonymous namespace)::wrapper_CUDA_add_Tensor>>>::call",
		"libtorch_cpu.so at::_ops::add_Tensor::redispatch",
		"libtorch_cpu.so torch::autograd::VariableType::(anonymous namespace)::add_Tensor",
		"libtorch_cpu.so at::_ops::add_Tensor::call",
		"libtorch_python.so torch::autograd::THPVariable_add",
	}
	// AllocatorFrames is the part of a stack from a driver allocation through PyTorch's caching
	// allocator.
	AllocatorFrames = []string{
		"libcuda.so.580.95.05 cuMemAlloc_v2", "libcudart.so.12 ", "libcudart.so.12 cudaMalloc",
		"libc10_cuda.so c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::alloc_block",
		"libc10_cuda.so c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc",
		"libc10_cuda.so c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate",
		"libtorch_cpu.so at::detail::empty_generic",
		"libtorch_cuda.so at::detail::empty_cuda",
		"libtorch_cuda.so at::native::empty_strided_cuda",
		"libtorch_cpu.so at::_ops::empty_strided::redispatch",
		"libtorch_python.so torch::autograd::THPVariable_to",
	}
	// moduleCallFrames is the part between a Python function and a Python function that it calls
	// through C.
	moduleCallFrames = []string{"libpython3.12.so.1.0 method_vectorcall_VARARGS_KEYWORDS", "libpython3.12.so.1.0 " +
		"_PyEval_EvalFrameDefault"}
	moduleFrames = []string{
		TorchDir + "nn/modules/module.py:1562 Module._call_impl", TorchDir + "nn/modules/module.py:1553 " +
			"Module._wrapped_call_impl",
		"libpython3.12.so.1.0 method_vectorcall", "libpython3.12.so.1.0 slot_tp_call", "libpython3.12.so.1.0 " +
			"_PyObject_MakeTpCall",
		"libpython3.12.so.1.0 _PyEval_EvalFrameDefault",
	}
	scriptFrames = []string{"/app/train.py:88 train_step", "/app/train.py:120 main", "/app/train.py:131 <module>"}
	startFrames  = []string{
		"libpython3.12.so.1.0 PyEval_EvalCode", "libpython3.12.so.1.0 ", "libpython3.12.so.1.0 " +
			"_PyRun_SimpleFileObject", "libpython3.12.so.1.0 Py_RunMain",
		"libc.so.6 ", "libc.so.6 __libc_start_main_impl", "/usr/bin/python3.12 _start",
	}
	autogradFrames = []string{
		"libtorch_cpu.so torch::autograd::Node::operator()", "libtorch_cpu.so " +
			"torch::autograd::Engine::evaluate_function",
		"libtorch_cpu.so torch::autograd::Engine::thread_main", "libtorch_python.so " +
			"torch::autograd::python::PythonEngine::thread_init",
		"libstdc++.so.6 ", "libc.so.6 start_thread", "libc.so.6 __clone3",
	}
)

// ForwardStack returns the stack of a model's layer that a script calls.
func ForwardStack(leaf, operation []string) []format.Frame {
	return ParseFrames(
		slices.Concat(
			leaf,
			operation,
			moduleCallFrames,
			[]string{"/app/model.py:12 Block.forward"},
			moduleFrames,
			[]string{
				TorchDir + "nn/modules/container.py:219 Sequential.forward",
			},
			moduleFrames,
			scriptFrames,
			startFrames,
		)...)
}

// BackwardStack returns the stack of an operation in PyTorch's autograd engine.
func BackwardStack() []format.Frame {
	return ParseFrames(slices.Concat(LaunchFrames, AdditionFrames[:7], []string{"libtorch_cpu.so " +
		"torch::autograd::generated::AddBackward0::apply"}, autogradFrames)...)
}

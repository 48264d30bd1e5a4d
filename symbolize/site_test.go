package symbolize

import (
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// meanStack returns the stack of a PyTorch program on a real GPU with a stripped interpreter.
func meanStack() []SiteCandidate {
	const torch, python = "/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so", "/usr/bin/python3.12"
	stack := []SiteCandidate{
		{Module: "/usr/lib/libcuda.so.1", Function: "cuLaunchKernel"},
		{Module: "/venv/lib/libcudart.so.13"},
		{Module: "/venv/lib/libcudart.so.13", Function: "cudaLaunchKernel"},
	}
	for _, function := range []string{
		"at::native::gpu_reduce_kernel<float, float>",
		"at::native::mean_kernel_cuda",
		"at::native::structured_mean_out::impl",
		"at::(anonymous namespace)::wrapper_CUDA_mean_dim",
		"c10::impl::wrap_kernel_functor_unboxed_<f>::call",
		"at::_ops::mean_dim::call",
		"at::native::mean",
		"at::(anonymous namespace)::wrapper_mean",
		"c10::impl::wrap_kernel_functor_unboxed_<f>::call",
		"at::_ops::mean::redispatch", "torch::autograd::VariableType::(anonymous " +
			"namespace)::mean",
		"c10::impl::wrap_kernel_functor_unboxed_<f>::call",
		"at::_ops::mean::call",
		"torch::autograd::THPVariable_mean",
	} {
		stack = append(stack, SiteCandidate{Module: torch, Function: function})
	}
	stack = append(
		stack,
		SiteCandidate{Module: python},
		SiteCandidate{Module: python},
		SiteCandidate{Module: python, Function: "PyObject_Vectorcall"},
	)
	for _, function := range []string{"step", "run", "<module>"} {
		stack = append(stack, SiteCandidate{File: "/app/workloads.py", Function: function, Python: true})
	}
	stack = append(stack, SiteCandidate{File: "<shim>", Function: "<interpreter trampoline>", Python: true})
	for _, function := range []string{
		"_PyEval_EvalFrameDefault",
		"PyEval_EvalCode",
		"",
		"_PyRun_SimpleFileObject",
		"_PyRun_AnyFileObject",
		"Py_RunMain",
		"Py_BytesMain",
	} {
		stack = append(stack, SiteCandidate{Module: python, Function: function})
	}
	return append(
		stack,
		SiteCandidate{Module: "/usr/lib/libc.so.6"},
		SiteCandidate{Module: "/usr/lib/libc.so.6", Function: "__libc_start_main"},
		SiteCandidate{Module: python, Function: "_start"},
	)
}

// engineStack returns the stack of an autograd engine thread.
func engineStack() []SiteCandidate {
	stack := []SiteCandidate{
		{Module: "/usr/lib/libcuda.so.1", Function: "cuLaunchKernel"},
		{Module: "/venv/lib/libcudart.so.13"},
	}
	for _, function := range []string{
		"at::native::mul_kernel_cuda",
		"at::_ops::mul_Tensor::call",
		"torch::autograd::generated::MulBackward0::apply",
		"torch::autograd::Node::operator()",
		"torch::autograd::Engine::evaluate_function",
		"torch::autograd::Engine::thread_main",
		"torch::autograd::python::PythonEngine::thread_init",
	} {
		stack = append(stack, SiteCandidate{Module: "/venv/torch/lib/libtorch_cuda.so", Function: function})
	}
	return append(
		stack,
		SiteCandidate{Module: "/usr/lib/libstdc++.so.6", Function: "execute_native_thread_routine"},
		SiteCandidate{Module: "/usr/lib/libc.so.6", Function: "start_thread"},
		SiteCandidate{Module: "/usr/lib/libc.so.6", Function: "clone3"},
	)
}

func TestSiteFrame(t *testing.T) {
	testclass.Unit(t)
	type f = SiteCandidate
	const libcuda, torch, app = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", "/venv/torch/lib/libtorch_cuda.so", "/app/train"
	const site = "/venv/lib/python3.12/site-packages/"
	n := func(module, function string) f { return f{Module: module, Function: function} }
	py := func(file, function string) f { return f{File: file, Function: function, Python: true} }
	leaf := n(libcuda, "cuMemAlloc_v2")
	shim := py("<shim>", "<interpreter trampoline>")
	eval := n("/usr/lib/libpython3.12.so.1.0", "_PyEval_EvalFrameDefault")
	call := py(site+"torch/nn/modules/module.py", "Module._call_impl")
	linear := py(site+"torch/nn/modules/linear.py", "Linear.forward")
	start := []f{
		n("/usr/lib/libpython3.12.so.1.0", "Py_RunMain"),
		n("/usr/lib/libc.so.6", "__libc_start_main_impl"),
		n("/usr/bin/python3.12", "_start"),
	}
	thread := []f{
		n("/usr/lib/libstdc++.so.6", "execute_native_thread_routine"),
		n("/usr/lib/libc.so.6", "start_thread"),
		n("/usr/lib/libc.so.6", "__clone3"),
	}
	bootstrap := []f{
		py("/usr/lib/python3.12/threading.py", "Thread.run"),
		py("/usr/lib/python3.12/threading.py", "Thread._bootstrap"),
		n("/usr/lib/libc.so.6", "start_thread"),
	}
	for name, c := range map[string]struct {
		frames []f
		want   int
	}{
		// stacks without Python
		"no stack":                               {nil, -1},
		"only the call":                          {[]f{leaf}, 0},
		"the program calls the driver":           {[]f{leaf, n(app, "step"), n(app, "main")}, 1},
		"libraries are skipped":                  {[]f{leaf, n("/x/libcudart.so.12", "cudaMalloc"), n(torch, "at::empty"), n(app, "step"), n(app, "main")}, 3},
		"a static runtime is skipped":            {[]f{leaf, n(app, "libcudart_static_5382377d"), n(app, "__cudart516"), n(app, "cudaMalloc"), n(app, "step")}, 4},
		"a function without name counts":         {[]f{leaf, n(app, ""), n(app, "main")}, 1},
		"addresses in no file do not":            {[]f{leaf, n("", ""), n("[stack]", ""), n(app, "main")}, 3},
		"code made at run time does":             {[]f{leaf, n(torch, "f"), n("", "py::step:/app/train.py"), n(app, "main")}, 2},
		"only libraries: the outermost name":     {[]f{leaf, n(torch, "f"), n(torch, "g"), n(torch, "")}, 2},
		"only libraries without names":           {[]f{leaf, n(torch, ""), n(torch, "")}, 1},
		"a library of the program is its own":    {[]f{leaf, n("/app/libstep.so", "step")}, 1},
		"libraries that begin alike are own":     {[]f{leaf, n("/app/libctrain.so", "step"), n(app, "main")}, 1},
		"functions that begin alike are own":     {[]f{leaf, n(app, "cudaMalloc_wrapper(int)")}, 1},
		"Windows paths":                          {[]f{leaf, n(`C:\cuda\libcudart.so.12`, "f"), n(`C:\app\train.exe`, "")}, 2},
		"unknown code only: the caller":          {[]f{leaf, n("", ""), n("[stack]", "")}, 1},
		"unknown code after a name: the name":    {[]f{leaf, n(torch, "f"), n("", "")}, 1},
		"the stub of a kernel is nvcc's":         {[]f{leaf, n(app, "cudaLaunchKernel"), n(app, "__device_stub__Z5mixedPfi(float*, int)"), n(app, "step")}, 3},
		"a template of CUDA's header":            {[]f{leaf, n(app, "cudaMalloc"), n(app, "cudaMalloc<float>"), n(app, "load"), n(app, "main")}, 3},
		"the same with its type":                 {[]f{leaf, n(app, "cudaError cudaMallocHost<float>(float**, unsigned long, unsigned int)"), n(app, "load")}, 2},
		"a function of one that begins alike":    {[]f{leaf, n(app, "cudaMalloc"), n(app, "cudaMalloc_checked<float>"), n(app, "main")}, 2},
		"a launch without optimization":          {[]f{leaf, n(app, "cudaLaunchKernel<char>"), n(app, "__device_stub__Z4stepPf(float*)"), n(app, "step(float*)"), n(app, "main")}, 3},
		"a vector of Thrust":                     {[]f{leaf, n(app, "thrust::cuda_cub::malloc"), n(app, "std::allocator_traits<f>::allocate"), n(app, "thrust::device_vector<float>::device_vector"), n(app, "fill")}, 4},
		"a pool of RMM":                          {[]f{leaf, n(app, "rmm::mr::cuda_async_memory_resource::do_allocate"), n(app, "cuda::mr::resource_ref::allocate"), n(app, "rmm::device_buffer::device_buffer"), n(app, "join")}, 4},
		"a sort of CUB":                          {[]f{leaf, n(app, "cub::DeviceRadixSort::SortKeys<int>"), n(app, "sort_keys")}, 2},
		"CuPy's pool":                            {append([]f{leaf, n(site+"cupy_backends/cuda/api/runtime.cpython-312-x86_64-linux-gnu.so", "malloc"), n(site+"cupy/cuda/memory.cpython-312-x86_64-linux-gnu.so", "SingleDeviceMemoryPool._malloc"), py(site+"cupy/_creation/basic.py", "zeros"), py("/app/t.py", "step")}, start...), 4},
		"__cudaRegisterFatBinary is the runtime": {[]f{leaf, n(app, "__cudaRegisterFatBinary"), n(app, "main")}, 2},
		// stacks with Python
		"a model's layer":                         {append([]f{leaf, n(torch, "at::native::mm"), eval, linear, call, py("/app/model.py", "Block.forward"), call, py("/app/train.py", "main")}, start...), 5},
		"a line of the script, not its extension": {append([]f{leaf, n("/app/ext.so", "my_kernel"), n("/app/ext.so", "pybind11::cpp_function::dispatcher"), eval, py("/app/model.py", "forward")}, start...), 4},
		"a package that is no framework":          {append([]f{leaf, linear, call, py(site+"vllm/worker.py", "execute"), py("/usr/bin/vllm", "<module>")}, start...), 3},
		"a notebook":                              {append([]f{leaf, linear, py("/tmp/ipykernel_7/123.py", "<module>"), py(site+"IPython/core/interactiveshell.py", "run_code")}, start...), 2},
		"python -c":                               {append([]f{leaf, linear, py("<string>", "<module>")}, start...), 2},
		"what inductor wrote is torch":            {append([]f{leaf, n("/home/u/.triton/cache/x/__triton_launcher.so", "launch"), py("/tmp/torchinductor_root/ab/cab.py", "call"), py("<eval_with_key>.3", "forward"), py("/app/t.py", "step")}, start...), 4},
		"stdlib between own lines":                {append([]f{leaf, linear, py("/usr/lib/python3.12/contextlib.py", "inner"), py("/app/t.py", "step")}, start...), 3},
		"a thread of the autograd engine":         {append([]f{leaf, n(torch, "at::_ops::mul::call"), n(torch, "torch::autograd::generated::MulBackward0::apply"), n(torch, "torch::autograd::Node::operator()"), n(torch, "torch::autograd::Engine::thread_main")}, thread...), 2},
		"a thread of the data loader":             {append([]f{leaf, py(site+"torch/_tensor.py", "Tensor.pin_memory"), py(site+"torch/utils/data/_utils/pin_memory.py", "_pin_memory_loop")}, bootstrap...), 2},
		"a thread of the program in C++":          {append([]f{leaf, n(app, "std::vector<float>::resize"), n(app, "worker"), n(app, "std::thread::_State_impl<f>::_M_run")}, thread...), 2},
		"only templates in the program":           {append([]f{leaf, n(app, "thrust::detail::malloc"), n(app, "std::__invoke<f>")}, thread...), 1},
		"a static interpreter":                    {[]f{leaf, n("/usr/bin/python3.12", "_PyEval_EvalFrameDefault"), n("/usr/bin/python3.12", "main"), n("/usr/bin/python3.12", "_start")}, 1},
		"ctypes":                                  {append([]f{leaf, n("/usr/lib/libffi.so.8", "ffi_call"), n("/usr/lib/python3.12/lib-dynload/_ctypes.cpython-312-x86_64-linux-gnu.so", ""), eval, py("/app/t.py", "step")}, start...), 4},
		"a C++ program ends in libc":              {[]f{leaf, n(app, "main"), n("/usr/lib/libc.so.6", "__libc_start_call_main"), n(app, "_start")}, 1},
		"PyTorch of a stripped python3.12":        {meanStack(), 20},
		"an extension without symbols":            {append([]f{leaf, n("/app/ext.so", ""), eval, py("/app/model.py", "forward")}, start...), 3},
		"the autograd engine":                     {engineStack(), 4},
		"the autograd engine, by thunks":          {[]f{leaf, n(torch, "torch::autograd::AccumulateGrad::apply"), n(torch, "non-virtual thunk to torch::autograd::python::PythonEngine::thread_init"), n(torch, "execute_native_thread_routine")}, 1},
		"templates in a thread":                   {[]f{leaf, n(app, "thrust::malloc"), n(app, "execute_native_thread_routine"), n("/usr/lib/libc.so.6", "start_thread")}, 1},
		"the interpreter's own frame":             {append([]f{leaf, linear, shim, eval}, start...), 1},
		"modules that are frozen":                 {append([]f{leaf, py("_bootstrap.py", "_find_and_load"), py("<frozen runpy>", "_run_code"), shim}, start...), 1},
		"an import":                               {append([]f{leaf, py(site+"torch/cuda/__init__.py", "init"), py("_bootstrap.py", "_find_and_load"), shim, eval, py("/app/t.py", "<module>")}, start...), 5},
		"Python that could not be read":           {append([]f{leaf, n(torch, "at::_ops::mm::call"), py("", ""), eval}, start...), 1},
		"a loop of OpenMP":                        {[]f{leaf, n(torch, "at::parallel"), n("/usr/lib/libgomp.so.1", "GOMP_parallel"), n(torch, "at::native::copy")}, 3},
		"truncated before the script":             {[]f{leaf, n(torch, "at::native::mm"), n(torch, "at::_ops::mm::call"), eval}, 2},
	} {
		got := SiteFrame(len(c.frames), func(i int) SiteCandidate { return c.frames[i] })
		if got != c.want {
			t.Errorf("%s: frame %d, want %d", name, got, c.want)
		}
	}
}

func TestFrameName(t *testing.T) {
	testclass.Unit(t)
	for want, got := range map[string]string{
		"step":        FrameName("step", "/app/train", 1),
		"train+0x1f0": FrameName("", "/app/train", 0x1f0),
		"t.exe+0x1f0": FrameName("", `C:\app\t.exe`, 0x1f0),
		"0x7fff":      FrameName("", "", 0x7fff),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestNameWithLine(t *testing.T) {
	testclass.Unit(t)
	for want, got := range map[string]string{
		"step (train.py:12)": NameWithLine("step", "/app/train.py", 12),
		"step (<string>:1)":  NameWithLine("step", "<string>", 1),
		"step (train.py)":    NameWithLine("step", "train.py", 0),
		"step":               NameWithLine("step", "", 12),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestCodeFrame(t *testing.T) {
	testclass.Unit(t)
	kernel := SiteCandidate{Module: "kernel", Function: "futex_wait", Kernel: true}
	libc := SiteCandidate{Module: "/lib/libc.so.6", Function: "nanosleep"}
	program := SiteCandidate{Module: "/app/train", Function: "load"}
	for name, c := range map[string]struct {
		frames []SiteCandidate
		want   int
	}{
		"none":                   {nil, -1},
		"kernel only":            {[]SiteCandidate{kernel, kernel}, -1},
		"the first frame":        {[]SiteCandidate{program, program}, 0},
		"behind the kernel":      {[]SiteCandidate{kernel, program}, 1},
		"behind kernel and libc": {[]SiteCandidate{kernel, kernel, libc, program, program}, 3},
		"library only":           {[]SiteCandidate{kernel, libc}, 1},
	} {
		if got := CodeFrame(len(c.frames), func(i int) SiteCandidate { return c.frames[i] }); got != c.want {
			t.Errorf("%s: frame %d, want %d", name, got, c.want)
		}
	}
}

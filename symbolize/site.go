package symbolize

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// SiteCandidate is one frame of a stack, as SiteFrame needs it to choose the call site.
// Module is the path of the frame's ELF file. Function is its demangled name. Both may be empty.
type SiteCandidate struct {
	Module, Function string
	// File is the source file of a Python frame. SiteFrame ignores it for machine code.
	File string
	// Python reports whether the frame is Python code, Kernel whether it is code of the kernel.
	Python, Kernel bool
}

var (
	// runtimeLibraryNames matches file names of libraries between a program and the GPU, of C
	// libraries, and of the Python interpreter.
	runtimeLibraryNames = regexp.MustCompile(
		`^(libcuda|libnvidia|libnvrtc|libnvJitLink|libcublas|libcudnn|libcufft|libcurand|libcusolver|libcusparse|libcutensor|libnccl` +
			`|libc10|libtorch|libtriton|libpython|ld-linux|_ctypes|libffi|libgomp|libomp|libiomp|cuda_utils|__triton_launcher)[-.\w]*\.so` +
			`|^(libc|libstdc\+\+|libc\+\+|libgcc_s|libpthread)(-[\d.]+)?\.so|^\[vdso\]$|^python[23]?[\d.]*[a-z]?$`,
	)
	// frameworkPaths matches paths of Python frameworks and of the Python code that they generate.
	// Machine code under these paths counts as a runtime library.
	frameworkPaths = regexp.MustCompile(
		`(^|/)(site|dist)-packages/(torch|torchvision|torchaudio|torchgen|functorch|triton|numpy|cupy|cupyx|cupy_backends|numba|numba_cuda` +
			`|llvmlite|jax|jaxlib|tensorflow|keras|tensorrt|onnxruntime|nvidia|cuda|pycuda|rmm)/|/torchinductor_[^/]+/|^<(eval_with_key|__array_function__)`,
	)
	// pythonStdlibPaths matches Python's standard library. Modules that are built into the
	// interpreter have a file name without a path.
	pythonStdlibPaths = regexp.MustCompile(
		`(^|/)lib(64)?/python[23][.\d]*t?/|^<(frozen |shim>)|^(_bootstrap|_bootstrap_external|runpy|zipimport|os|site|codecs|abc|_collections_abc)\.py$`,
	)
	pythonPackagePaths = regexp.MustCompile(`/(site|dist)-packages/`)
	// runtimeFunctionNames matches functions of a statically linked CUDA runtime, templates of its headers, functions
	// that nvcc makes to launch a kernel, and functions that start programs and threads.
	runtimeFunctionNames = regexp.MustCompile(
		`^(libcudart_static_\w+|__cudart\w*|__cuda[A-Z]\w*|__device_stub__.*|__nv_\w+|cuda[A-Z]\w*|_start|__libc_start_\w+|execute_native_thread_routine)$` +
			`|^(cudaError(_t)? )?cuda(Create|Event|Func|Get|Graph|Host|Launch|Malloc|Memcpy|Occupancy|Stream|User)[A-Za-z\d]*<`,
	)
	// libraryTemplateNames matches template functions of libraries, which the compiler puts into
	// the program.
	libraryTemplateNames = regexp.MustCompile(
		`^(std|__gnu_cxx|thrust|cub|cuda|c10|at|torch|pybind11|nanobind|rmm|raft|cute|cutlass|cooperative_groups|nvtx3)::`,
	)
	// threadStartFunctions matches functions that start a thread's work.
	threadStartFunctions = regexp.MustCompile(
		`^((non-)?virtual thunk to )?(torch::autograd::((Engine|GraphTask|Node|python)::|call_function$)|std::)|^(start_thread|thread_start|(__)?clone3?|_start|__libc_start_\w+|execute_native_thread_routine)$`,
	)
	// startupLibraryNames matches libraries in which all functions without a better rank start
	// threads or programs.
	startupLibraryNames = regexp.MustCompile(
		`^(libc|libpthread|libstdc\+\+|libc\+\+|ld-linux|libpython|python)[-+.\w]*$`,
	)
)

// IsRuntimeLibrary reports whether the file at a path is a library between a program and the GPU:
// CUDA, a framework, a C library or the Python interpreter.
func IsRuntimeLibrary(module string) bool {
	return runtimeLibraryNames.MatchString(ModuleName(module)) || frameworkPaths.MatchString(module) ||
		strings.Contains(module, "/lib-dynload/")
}

// ModuleName returns the file name of a module's path. It accepts slashes and backslashes, because
// recordings may come from any system.
func ModuleName(module string) string { return path.Base(strings.ReplaceAll(module, `\`, "/")) }

// Ranks of frames as the call site, best first. SiteFrame takes the innermost frame of the best
// rank. For frameworks and libraries it takes the outermost frame: the function that the program
// called.
const (
	frameRankScript    = iota // Python code outside of frameworks
	frameRankProgram          // machine code of the program
	frameRankTemplate         // a library's template that is compiled into the program
	frameRankFramework        // Python code of a framework
	frameRankLibrary          // machine code of a library
	frameRankStartup          // code that starts threads, programs or the interpreter
	frameRankUnknown          // no known function
)

// rankFrame returns the rank of a frame.
func rankFrame(c SiteCandidate) int {
	if c.Python {
		return rankPythonFrame(c)
	}
	own := !IsRuntimeLibrary(c.Module) && !runtimeFunctionNames.MatchString(c.Function)
	switch {
	case IsUnknownCode(c.Module, c.Function):
		return frameRankUnknown
	case own && libraryTemplateNames.MatchString(c.Function):
		return frameRankTemplate
	case own:
		return frameRankProgram
	case c.Function == "":
		return frameRankUnknown
	case threadStartFunctions.MatchString(c.Function) || startupLibraryNames.MatchString(ModuleName(c.Module)):
		return frameRankStartup
	}
	return frameRankLibrary
}

// rankPythonFrame returns the rank of a Python frame.
func rankPythonFrame(c SiteCandidate) int {
	switch {
	case c.Function == "" && c.File == "": // the frame could not be read
		return frameRankUnknown
	case pythonStdlibPaths.MatchString(c.File) && !pythonPackagePaths.MatchString(c.File):
		return frameRankStartup
	case frameworkPaths.MatchString(c.File):
		return frameRankFramework
	}
	return frameRankScript
}

// SiteFrame returns the index of the frame that is the call site: the frame of the program itself
// that made the call. frame(i) returns frame i, leaf first; frame 0 is the called function. The
// call site is the innermost Python frame outside of frameworks. Without such a frame, it is the
// innermost machine code frame of the program. If all known frames are in frameworks and libraries,
// it is the outermost of them that does not start threads or programs. Otherwise it is frame 1, the
// direct caller. SiteFrame returns 0 for a stack of one frame and -1 for an empty stack.
func SiteFrame(frames int, frame func(i int) SiteCandidate) int {
	best, found := min(1, frames-1), frameRankUnknown
	for i := 1; i < frames && found > frameRankScript; i++ {
		if r := rankFrame(frame(i)); r < found || r == found && (r == frameRankFramework || r == frameRankLibrary) {
			best, found = i, r
		}
	}
	return best
}

// IsOwnCode reports whether a frame is code of the program itself, in Python or in machine code: not of
// a framework, a library, the interpreter or the start of a thread.
func IsOwnCode(c SiteCandidate) bool { return rankFrame(c) <= frameRankProgram }

// CodeFrame returns the index of the innermost frame of the program's own code in the stack of a thread at any
// place, by the rule of SiteFrame: the first frame need not be a call of the driver. Frames of the kernel come
// first, and are never chosen. It returns -1 if there are no others.
func CodeFrame(frames int, frame func(i int) SiteCandidate) int {
	first := 0
	for first < frames && frame(first).Kernel {
		first++
	}
	if first == frames {
		return -1
	}
	return first - 1 + SiteFrame(frames-first+1, func(i int) SiteCandidate { return frame(first - 1 + i) })
}

// IsUnknownCode reports whether a frame has neither a function name nor a file. Causes are a wrong
// frame pointer, or generated code without symbols.
func IsUnknownCode(module, function string) bool {
	return function == "" && !strings.ContainsAny(module, `/\`)
}

// FrameName returns the function name of a frame. Without a name it returns "MODULE+0xADDR", or
// "0xADDR".
func FrameName(function, module string, addr int64) string {
	switch {
	case function != "":
		return function
	case module != "":
		return fmt.Sprintf("%s+0x%x", ModuleName(module), addr)
	}
	return fmt.Sprintf("0x%x", addr)
}

// NameWithLine returns the name of a frame with its source line: "step (train.py:12)". Without a
// file it returns only the name.
func NameWithLine(name, file string, line int32) string {
	switch {
	case file == "":
		return name
	case line <= 0:
		return fmt.Sprintf("%s (%s)", name, ModuleName(file))
	}
	return fmt.Sprintf("%s (%s:%d)", name, ModuleName(file), line)
}

package symbolize

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// SiteCandidate is what SiteFrame wants to know of a frame.
type SiteCandidate struct {
	Module, Function string
	// File is the source file of Python code; of machine code it is not looked at.
	File   string
	Python bool
}

var (
	// runtimeLibraries are the libraries that stand between a program and the GPU, and the interpreter that
	// runs it.
	runtimeLibraries = regexp.MustCompile(
		`^(libcuda|libnvidia|libnvrtc|libnvJitLink|libcublas|libcudnn|libcufft|libcurand|libcusolver|libcusparse|libcutensor|libnccl` +
			`|libc10|libtorch|libtriton|libpython|ld-linux|_ctypes|libffi|libgomp|libomp|libiomp|cuda_utils|__triton_launcher)[-.\w]*\.so` +
			`|^(libc|libstdc\+\+|libc\+\+|libgcc_s|libpthread)(-[\d.]+)?\.so|^python[23]?[\d.]*[a-z]?$`,
	)
	// frameworks are Python packages through which calls only pass, and the Python code that they
	// write. What they have of machine code is runtimeLibraries, too.
	frameworks = regexp.MustCompile(
		`(^|/)(site|dist)-packages/(torch|torchvision|torchaudio|torchgen|functorch|triton|numpy|cupy|cupyx|cupy_backends|numba|numba_cuda` +
			`|llvmlite|jax|jaxlib|tensorflow|keras|tensorrt|onnxruntime|nvidia|cuda|pycuda|rmm)/|/torchinductor_[^/]+/|^<(eval_with_key|__array_function__)`,
	)
	// stdlib is Python's own library. The unwinder names modules that the interpreter has built in
	// after the module alone.
	stdlib = regexp.MustCompile(
		`(^|/)lib(64)?/python[23][.\d]*t?/|^<(frozen |shim>)|^(_bootstrap|_bootstrap_external|runpy|zipimport|os|site|codecs|abc|_collections_abc)\.py$`,
	)
	packages = regexp.MustCompile(`/(site|dist)-packages/`)
	// runtimeFunctions are those of a CUDA runtime that is linked into the program itself, and
	// what starts it.
	runtimeFunctions = regexp.MustCompile(
		`^(libcudart_static_\w+|__cudart\w*|__cuda[A-Z]\w*|cuda[A-Z]\w*|_start|__libc_start_\w+|execute_native_thread_routine)$`,
	)
	// templates are functions of libraries that a compiler put into the program.
	templates = regexp.MustCompile(`^(std|__gnu_cxx|thrust|cub|cuda|c10|at|torch|pybind11|nanobind)::`)
	// threadStarters run what a thread is there for, in the libraries or by these functions.
	threadStarters = regexp.MustCompile(
		`^((non-)?virtual thunk to )?(torch::autograd::((Engine|GraphTask|Node|python)::|call_function$)|std::)|^(start_thread|thread_start|(__)?clone3?|_start|__libc_start_\w+|execute_native_thread_routine)$`,
	)
	startLibraries = regexp.MustCompile(`^(libc|libpthread|libstdc\+\+|libc\+\+|ld-linux|libpython|python)[-+.\w]*$`)
)

// IsRuntimeLibrary reports whether a file, given by its path, is a library that calls only pass through
// on their way to the GPU.
func IsRuntimeLibrary(module string) bool {
	return runtimeLibraries.MatchString(ModuleName(module)) || frameworks.MatchString(module) ||
		strings.Contains(module, "/lib-dynload/")
}

// ModuleName is the file name of a module's path; that may come from any system, so both separators
// count.
func ModuleName(module string) string { return path.Base(strings.ReplaceAll(module, `\`, "/")) }

// Ranks of frames as the place in the program that made a call, the best first. Of each the
// innermost frame counts, but of frameworks and libraries the outermost: that is what the program
// asked for.
const (
	rankScript   = iota // Python code that belongs to no framework
	rankOwn             // machine code of the program
	rankTemplate        // a library's template, compiled into the program
	rankPackage         // Python code of a framework
	rankLibrary         // machine code of a library
	rankStart           // what runs threads, programs and the interpreter
	rankNone            // no name
)

func rank(c SiteCandidate) int {
	if c.Python {
		return pythonRank(c)
	}
	own := !IsRuntimeLibrary(c.Module) && !runtimeFunctions.MatchString(c.Function)
	switch {
	case IsUnknownCode(c.Module, c.Function):
		return rankNone
	case own && templates.MatchString(c.Function):
		return rankTemplate
	case own:
		return rankOwn
	case c.Function == "":
		return rankNone
	case threadStarters.MatchString(c.Function) || startLibraries.MatchString(ModuleName(c.Module)):
		return rankStart
	}
	return rankLibrary
}

func pythonRank(c SiteCandidate) int {
	switch {
	case c.Function == "" && c.File == "": // it could not be read
		return rankNone
	case stdlib.MatchString(c.File) && !packages.MatchString(c.File):
		return rankStart
	case frameworks.MatchString(c.File):
		return rankPackage
	}
	return rankScript
}

// SiteFrame chooses the frame of a stack that stands for the place in the program that made the
// call. frame returns frame i, leaf first; frame 0 is the called function itself. It is the
// innermost line of Python that belongs to no framework, or without such the innermost frame of the
// program's own machine code. Where only frameworks and libraries are known it is the outermost
// frame that says what they were asked for, not what starts threads and programs; or else the
// caller: frame 1. For a stack of one frame it is 0, for none -1.
func SiteFrame(frames int, frame func(i int) SiteCandidate) int {
	best, found := min(1, frames-1), rankNone
	for i := 1; i < frames && found > rankScript; i++ {
		if r := rank(frame(i)); r < found || r == found && (r == rankPackage || r == rankLibrary) {
			best, found = i, r
		}
	}
	return best
}

// IsUnknownCode reports whether a frame is an address that lies in no file and has no name: what a walk
// by frame pointers finds when it went astray, or code made at run time of which nothing is known.
func IsUnknownCode(module, function string) bool {
	return function == "" && !strings.ContainsAny(module, `/\`)
}

// FrameName is a frame's function, or where it lies when that has no name.
func FrameName(function, module string, addr int64) string {
	switch {
	case function != "":
		return function
	case module != "":
		return fmt.Sprintf("%s+0x%x", ModuleName(module), addr)
	}
	return fmt.Sprintf("0x%x", addr)
}

// NameWithLine is the name of a frame with the line that it stands at: "step (train.py:12)"; only the
// name where no file is known.
func NameWithLine(name, file string, line int32) string {
	switch {
	case file == "":
		return name
	case line <= 0:
		return fmt.Sprintf("%s (%s)", name, ModuleName(file))
	}
	return fmt.Sprintf("%s (%s:%d)", name, ModuleName(file), line)
}

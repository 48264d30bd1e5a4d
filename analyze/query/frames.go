package query

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// A stack of a PyTorch program has about 50 frames. About five are the program's own. The
// others are the same in every program. Reports fold them into a line with their number and origin.

// FrameRules determine which frames of stacks are hidden. The zero value hides none. It is safe for
// concurrent use.
type FrameRules struct {
	defaults bool
	own      []*regexp.Regexp
}

// DefaultFrameRules hide frames of CUDA, PyTorch, Python and the standard libraries. Reports use
// them by default.
var DefaultFrameRules = &FrameRules{defaults: true}

// FrameRuleError is the error for a rule that is not a valid regular expression.
type FrameRuleError struct {
	Rule string
	Err  error
}

// Error returns the message for the user.
func (e *FrameRuleError) Error() string { return fmt.Sprintf("%q: %v", e.Rule, e.Err) }

// Unwrap returns the error of the regular expression.
func (e *FrameRuleError) Unwrap() error { return e.Err }

// ParseFrameRules parses rules that apply in addition to the default rules. A rule is a regular
// expression for the function, module or source file of a frame. "none" disables the default rules,
// and "default" has no effect. It returns a *FrameRuleError.
func ParseFrameRules(texts []string) (*FrameRules, error) {
	r := &FrameRules{defaults: !slices.Contains(texts, "none")}
	for _, text := range texts {
		if text == "none" || text == "default" {
			continue
		}
		rule, err := regexp.Compile(text)
		if err != nil {
			return nil, &FrameRuleError{text, err}
		}
		r.own = append(r.own, rule)
	}
	return r, nil
}

// HidesFrame reports whether a frame is hidden, and names the software that it belongs to.
func (r *FrameRules) HidesFrame(f *format.Frame) (of string, hidden bool) {
	for _, rule := range r.own {
		if rule.MatchString(FrameName(f)) || rule.MatchString(f.Module) || rule.MatchString(f.File) {
			return rule.String(), true
		}
	}
	if !r.defaults {
		return "", false
	}
	rules := nativeFrameRules
	if f.Type == FrameTypePython {
		rules = pythonFrameRules
	}
	for i := range rules {
		if rules[i].matchesFrame(f) {
			return rules[i].of, true
		}
	}
	return FrameOwnerUnknown, f.Type != FrameTypePython && symbolize.IsUnknownCode(f.Module, f.Func)
}

// FrameTypePython is the type of Python frames. Their functions have a file and a line, and no
// module.
const FrameTypePython = "python"

// Software that hidden frames belong to, as shown in reports.
const (
	FrameOwnerCUDA    = "CUDA"
	FrameOwnerPyTorch = "PyTorch"
	FrameOwnerCPython = "CPython"
	FrameOwnerStdlib  = "the standard library"
	FrameOwnerLibc    = "libc"
	FrameOwnerUnknown = "unknown code"
)

// hiddenFrameRule matches code that calls only pass through. A nil expression matches everything.
type hiddenFrameRule struct {
	of string
	// module matches the module's file name; function and file match the full function name and
	// path.
	module, function, file *regexp.Regexp
}

func (r *hiddenFrameRule) matchesFrame(f *format.Frame) bool {
	return (r.module == nil || r.module.MatchString(symbolize.ModuleName(f.Module))) &&
		(r.function == nil || r.function.MatchString(f.Func)) &&
		(r.file == nil || r.file.MatchString(f.File))
}

// emptyFunctionName matches functions without a name, as in stripped libraries.
var emptyFunctionName = regexp.MustCompile(`^$`)

// nativeFrameRules are the rules for native code. Function names are those of symbolize.Demangle,
// without return type and parameters.
var nativeFrameRules = []hiddenFrameRule{
	{of: FrameOwnerCUDA, module: CUDADriverModules},
	// The CUDA runtime, statically linked into a program.
	{
		of:       FrameOwnerCUDA,
		function: regexp.MustCompile(`^(libcudart_static_\w+|__cudart\w*|__cuda[A-Z]\w*|cuda[A-Z]\w*)$`),
	},
	{
		of:       FrameOwnerCUDA,
		function: emptyFunctionName,
		module: regexp.MustCompile(
			`^lib(nvidia|nvrtc|cublas|cudnn|cufft|curand|cusolver|cusparse|cutensor|nccl|nvJitLink)`,
		),
	},
	{
		of:     FrameOwnerCPython,
		module: regexp.MustCompile(`^(libpython[23][\w.]*\.so|python[23]?[\d.]*[a-z]?$|_ctypes\.|libffi\.so)`),
	},
	// The Python interpreter, statically linked into a program. PyInit_NAME belongs to an extension
	// module.
	{
		of: FrameOwnerCPython,
		function: regexp.MustCompile(
			`^(_?Py(Eval|Object|Vectorcall|CFunction|Function|Method|Import|Run|Type|Iter|Number|Sequence|Mapping|Gen|Obj)_?\w*` +
				`|Py_(RunMain|BytesMain|Main)|pymain_\w+|run_mod|run_eval_code_obj|builtin_exec|slot_tp_\w+|slot_nb_\w+|method_vectorcall\w*|vectorcall_\w+|cfunction_\w+|object_vacall|type_call)(\.\w+)*$`,
		),
	},
	{of: FrameOwnerPyTorch, module: regexp.MustCompile(`^libtorch_python\.so`)},
	// PyTorch's allocators, dispatcher and tensors, without operators. c10d (distributed) is not
	// matched.
	{of: FrameOwnerPyTorch, function: regexp.MustCompile(`^((non-)?virtual thunk to )?(c10::` +
		`|at::_ops::\w+::(call|redispatch)$` +
		`|at::(\(anonymous namespace\)::)+(wrapper_|structured_)` +
		`|(torch::autograd::VariableType|torch::ADInplaceOrView|torch::TraceType|at::autocast|at::functionalization)::` +
		`|torch::autograd::(Engine|GraphTask|python)::|torch::autograd::(call_function|validate_outputs|Node::operator\(\))` +
		`|pybind11::)`)},
	{of: FrameOwnerStdlib, module: regexp.MustCompile(`^lib(stdc\+\+|c\+\+|gcc_s)\.so`)},
	{
		of:       FrameOwnerStdlib,
		function: regexp.MustCompile(`^(std|__gnu_cxx|__cxxabiv1|core::ops)::|^_Unwind_\w+$|^__gxx_personality`),
	},
	{
		of: FrameOwnerLibc,
		function: regexp.MustCompile(
			`^(_start|__libc_start_\w+|start_thread|thread_start|(__)?clone3?|__clone_internal)(@.*)?$`,
		),
	},
	{
		of:       FrameOwnerLibc,
		function: emptyFunctionName,
		module:   regexp.MustCompile(`^((libc|libpthread)(-[\d.]+)?|ld-linux[-.\w]*)\.so`),
	},
}

// pythonFrameRules are the rules for Python code: files of PyTorch and of Python itself, never
// those of the user.
var pythonFrameRules = []hiddenFrameRule{
	{
		of:       FrameOwnerPyTorch,
		file:     regexp.MustCompile(`(^|/)torch/nn/modules/module\.py$`),
		function: regexp.MustCompile(`(^|\.)(_call_impl|_wrapped_call_impl|__call__)$`),
	},
	{of: FrameOwnerPyTorch, file: regexp.MustCompile(`(^|/)torch/(_ops|utils/_contextlib|_dynamo/eval_frame)\.py$`)},
	// Modules built into the interpreter, which the unwinder names by module only, and frames of
	// the interpreter between them.
	{
		of:   FrameOwnerCPython,
		file: regexp.MustCompile(`^<(frozen |shim>)|^(_bootstrap|_bootstrap_external|runpy|zipimport)\.py$`),
	},
	{
		of:   FrameOwnerCPython,
		file: regexp.MustCompile(`/lib(64)?/python[23][.\d]*t?/(runpy|threading|contextlib|functools)\.py$`),
	},
	{of: FrameOwnerCPython, function: regexp.MustCompile(`^<interpreter trampoline>$`)},
}

// CUDADriverModules matches the libraries of the CUDA driver and runtime. Every call passes through
// them, so their frames do not identify the program.
var CUDADriverModules = regexp.MustCompile(`^lib(cuda|cudart)\.so`)

// FrameName returns the frame's function, or its module and address if the function has no name.
func FrameName(f *format.Frame) string { return symbolize.FrameName(f.Func, f.Module, f.Addr) }

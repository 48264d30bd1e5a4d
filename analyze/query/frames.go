package query

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// A stack of a PyTorch program has 50 frames, of which five tell where in the program
// it is. The others, which are the same in every program, are folded: a line says how
// many there were and of what.

// FrameRules say which frames of stacks are not shown. The zero value hides none.
type FrameRules struct {
	defaults bool
	own      []*regexp.Regexp
}

// DefaultFrameRules are those of reports that are told nothing else.
var DefaultFrameRules = &FrameRules{defaults: true}

// FrameRuleError says that a rule for frames is no regular expression.
type FrameRuleError struct {
	Rule string
	Err  error
}

func (e *FrameRuleError) Error() string { return fmt.Sprintf("%q: %v", e.Rule, e.Err) }

func (e *FrameRuleError) Unwrap() error { return e.Err }

// ParseFrameRules reads rules that apply besides the default ones: regular expressions
// that match the function, the module or the source file of a frame, or "none", which
// puts the default rules out of force; "default" stands for those alone. It returns a
// *FrameRuleError.
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

// Hides reports whether a frame is hidden and what it is part of.
func (r *FrameRules) Hides(f *format.Frame) (of string, hidden bool) {
	for _, rule := range r.own {
		if rule.MatchString(FrameName(f)) || rule.MatchString(f.Module) || rule.MatchString(f.File) {
			return rule.String(), true
		}
	}
	if !r.defaults {
		return "", false
	}
	rules := nativePlumbing
	if f.Type == FramePython {
		rules = pythonPlumbing
	}
	for i := range rules {
		if rules[i].matches(f) {
			return rules[i].of, true
		}
	}
	return OfUnknown, f.Type != FramePython && symbolize.IsUnknownCode(f.Module, f.Func)
}

// FramePython is the type of frames of Python code; their functions have a file and
// lines, and no module.
const FramePython = "python"

// What hidden frames are part of, as readers know it.
const (
	OfCUDA    = "CUDA"
	OfPyTorch = "PyTorch"
	OfCPython = "CPython"
	OfStd     = "the standard library"
	OfLibc    = "libc"
	OfUnknown = "unknown code"
)

// plumbing is code through which calls only pass. What is nil matches everything.
type plumbing struct {
	of string
	// module is matched with the file name, function and file with all of theirs.
	module, function, file *regexp.Regexp
}

func (p *plumbing) matches(f *format.Frame) bool {
	return (p.module == nil || p.module.MatchString(symbolize.ModuleName(f.Module))) &&
		(p.function == nil || p.function.MatchString(f.Func)) &&
		(p.file == nil || p.file.MatchString(f.File))
}

// unnamed are functions that a stripped library does not name.
var unnamed = regexp.MustCompile(`^$`)

// nativePlumbing are the rules for machine code. Names are those of symbolize.Demangle:
// without return type and parameters.
var nativePlumbing = []plumbing{
	{of: OfCUDA, module: DriverModules},
	// The runtime, linked into a program.
	{of: OfCUDA, function: regexp.MustCompile(`^(libcudart_static_\w+|__cudart\w*|__cuda[A-Z]\w*|cuda[A-Z]\w*)$`)},
	{
		of:       OfCUDA,
		function: unnamed,
		module: regexp.MustCompile(
			`^lib(nvidia|nvrtc|cublas|cudnn|cufft|curand|cusolver|cusparse|cutensor|nccl|nvJitLink)`,
		),
	},
	{
		of:     OfCPython,
		module: regexp.MustCompile(`^(libpython[23][\w.]*\.so|python[23]?[\d.]*[a-z]?$|_ctypes\.|libffi\.so)`),
	},
	// The interpreter, linked into a program. PyInit_NAME is of an extension.
	{
		of: OfCPython,
		function: regexp.MustCompile(
			`^(_?Py(Eval|Object|Vectorcall|CFunction|Function|Method|Import|Run|Type|Iter|Number|Sequence|Mapping|Gen|Obj)_?\w*` +
				`|Py_(RunMain|BytesMain|Main)|pymain_\w+|run_mod|run_eval_code_obj|builtin_exec|slot_tp_\w+|slot_nb_\w+|method_vectorcall\w*|vectorcall_\w+|cfunction_\w+|object_vacall|type_call)(\.\w+)*$`,
		),
	},
	{of: OfPyTorch, module: regexp.MustCompile(`^libtorch_python\.so`)},
	// allocators, dispatcher, tensors without operations; c10d is another
	{of: OfPyTorch, function: regexp.MustCompile(`^((non-)?virtual thunk to )?(c10::` +
		`|at::_ops::\w+::(call|redispatch)$` +
		`|at::(\(anonymous namespace\)::)+(wrapper_|structured_)` +
		`|(torch::autograd::VariableType|torch::ADInplaceOrView|torch::TraceType|at::autocast|at::functionalization)::` +
		`|torch::autograd::(Engine|GraphTask|python)::|torch::autograd::(call_function|validate_outputs|Node::operator\(\))` +
		`|pybind11::)`)},
	{of: OfStd, module: regexp.MustCompile(`^lib(stdc\+\+|c\+\+|gcc_s)\.so`)},
	{
		of:       OfStd,
		function: regexp.MustCompile(`^(std|__gnu_cxx|__cxxabiv1|core::ops)::|^_Unwind_\w+$|^__gxx_personality`),
	},
	{
		of: OfLibc,
		function: regexp.MustCompile(
			`^(_start|__libc_start_\w+|start_thread|thread_start|(__)?clone3?|__clone_internal)(@.*)?$`,
		),
	},
	{of: OfLibc, function: unnamed, module: regexp.MustCompile(`^((libc|libpthread)(-[\d.]+)?|ld-linux[-.\w]*)\.so`)},
}

// pythonPlumbing are the rules for Python code: files of PyTorch and of Python itself,
// never the user's.
var pythonPlumbing = []plumbing{
	{
		of:       OfPyTorch,
		file:     regexp.MustCompile(`(^|/)torch/nn/modules/module\.py$`),
		function: regexp.MustCompile(`(^|\.)(_call_impl|_wrapped_call_impl|__call__)$`),
	},
	{of: OfPyTorch, file: regexp.MustCompile(`(^|/)torch/(_ops|utils/_contextlib|_dynamo/eval_frame)\.py$`)},
	// Modules that the interpreter has built in, which the unwinder names after the module alone,
	// and its frames in between.
	{
		of:   OfCPython,
		file: regexp.MustCompile(`^<(frozen |shim>)|^(_bootstrap|_bootstrap_external|runpy|zipimport)\.py$`),
	},
	{
		of:   OfCPython,
		file: regexp.MustCompile(`/lib(64)?/python[23][.\d]*t?/(runpy|threading|contextlib|functools)\.py$`),
	},
	{of: OfCPython, function: regexp.MustCompile(`^<interpreter trampoline>$`)},
}

// DriverModules are the libraries whose frames say nothing about the program: the
// CUDA driver and runtime, through which every call goes.
var DriverModules = regexp.MustCompile(`^lib(cuda|cudart)\.so`)

// FrameName is the frame's function, or where it lies when that has no name.
func FrameName(f *format.Frame) string { return symbolize.FrameName(f.Func, f.Module, f.Addr) }

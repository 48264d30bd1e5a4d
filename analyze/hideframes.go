package analyze

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

// defaultFrameRules are those of reports that are told nothing else.
var defaultFrameRules = &FrameRules{defaults: true}

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

// hides reports whether a frame is hidden and what it is part of.
func (r *FrameRules) hides(f *format.Frame) (of string, hidden bool) {
	for _, rule := range r.own {
		if rule.MatchString(frameName(f)) || rule.MatchString(f.Module) || rule.MatchString(f.File) {
			return rule.String(), true
		}
	}
	if !r.defaults {
		return "", false
	}
	rules := nativePlumbing
	if f.Type == framePython {
		rules = pythonPlumbing
	}
	for i := range rules {
		if rules[i].matches(f) {
			return rules[i].of, true
		}
	}
	return ofUnknown, f.Type != framePython && symbolize.IsStray(f.Module, f.Func)
}

// framePython is the type of frames of Python code; their functions have a file and
// lines, and no module.
const framePython = "python"

// What hidden frames are part of, as readers know it.
const (
	ofCUDA    = "CUDA"
	ofPyTorch = "PyTorch"
	ofCPython = "CPython"
	ofStd     = "the standard library"
	ofLibc    = "libc"
	ofUnknown = "unknown code"
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
	{of: ofCUDA, module: driverModules},
	// The runtime, linked into a program.
	{of: ofCUDA, function: regexp.MustCompile(`^(libcudart_static_\w+|__cudart\w*|__cuda[A-Z]\w*|cuda[A-Z]\w*)$`)},
	{of: ofCUDA, function: unnamed, module: regexp.MustCompile(`^lib(nvidia|nvrtc|cublas|cudnn|cufft|curand|cusolver|cusparse|cutensor|nccl|nvJitLink)`)},
	{of: ofCPython, module: regexp.MustCompile(`^(libpython[23][\w.]*\.so|python[23]?[\d.]*[a-z]?$|_ctypes\.|libffi\.so)`)},
	// The interpreter, linked into a program. PyInit_NAME is of an extension.
	{of: ofCPython, function: regexp.MustCompile(`^(_?Py(Eval|Object|Vectorcall|CFunction|Function|Method|Import|Run|Type|Iter|Number|Sequence|Mapping|Gen|Obj)_?\w*` +
		`|Py_(RunMain|BytesMain|Main)|pymain_\w+|run_mod|run_eval_code_obj|builtin_exec|slot_tp_\w+|slot_nb_\w+|method_vectorcall\w*|vectorcall_\w+|cfunction_\w+|object_vacall|type_call)(\.\w+)*$`)},
	{of: ofPyTorch, module: regexp.MustCompile(`^libtorch_python\.so`)},
	{of: ofPyTorch, function: regexp.MustCompile(`^((non-)?virtual thunk to )?(c10::` + // allocators, dispatcher, tensors without operations; c10d is another
		`|at::_ops::\w+::(call|redispatch)$` +
		`|at::(\(anonymous namespace\)::)+(wrapper_|structured_)` +
		`|(torch::autograd::VariableType|torch::ADInplaceOrView|torch::TraceType|at::autocast|at::functionalization)::` +
		`|torch::autograd::(Engine|GraphTask|python)::|torch::autograd::(call_function|validate_outputs|Node::operator\(\))` +
		`|pybind11::)`)},
	{of: ofStd, module: regexp.MustCompile(`^lib(stdc\+\+|c\+\+|gcc_s)\.so`)},
	{of: ofStd, function: regexp.MustCompile(`^(std|__gnu_cxx|__cxxabiv1|core::ops)::|^_Unwind_\w+$|^__gxx_personality`)},
	{of: ofLibc, function: regexp.MustCompile(`^(_start|__libc_start_\w+|start_thread|thread_start|(__)?clone3?|__clone_internal)(@.*)?$`)},
	{of: ofLibc, function: unnamed, module: regexp.MustCompile(`^((libc|libpthread)(-[\d.]+)?|ld-linux[-.\w]*)\.so`)},
}

// pythonPlumbing are the rules for Python code: files of PyTorch and of Python itself,
// never the user's.
var pythonPlumbing = []plumbing{
	{of: ofPyTorch, file: regexp.MustCompile(`(^|/)torch/nn/modules/module\.py$`), function: regexp.MustCompile(`(^|\.)(_call_impl|_wrapped_call_impl|__call__)$`)},
	{of: ofPyTorch, file: regexp.MustCompile(`(^|/)torch/(_ops|utils/_contextlib|_dynamo/eval_frame)\.py$`)},
	// Modules that the interpreter has built in, which the unwinder names after the module alone, and its frames in between.
	{of: ofCPython, file: regexp.MustCompile(`^<(frozen |shim>)|^(_bootstrap|_bootstrap_external|runpy|zipimport)\.py$`)},
	{of: ofCPython, file: regexp.MustCompile(`/lib(64)?/python[23][.\d]*t?/(runpy|threading|contextlib|functools)\.py$`)},
	{of: ofCPython, function: regexp.MustCompile(`^<interpreter trampoline>$`)},
}

// shown returns the frames of a stack as a report shows them, leaf first: at most limit
// of them (0: all), and instead of those that rules hide and those beyond the limit
// Frames that say how many. Every stack begins in CUDA: that needs no saying. Of a
// stack that is hidden as a whole the first frame is shown nevertheless.
func (s *stackTable) shown(stack int32, limit int, rules *FrameRules) []Frame {
	ids := s.stacks[stack]
	var list []Frame
	n := 0
	for i, id := range ids {
		f := &s.frames[id]
		of, hidden := rules.hides(f)
		switch {
		case hidden && (of != ofCUDA || len(list) > 0):
			list = fold(list, of)
		case hidden:
		case limit > 0 && n == limit:
			return cutShort(list, len(ids)-i)
		default:
			list = append(list, reportFrame(f))
			n++
		}
	}
	if n > 0 || len(ids) == 0 {
		return list
	}
	list = []Frame{reportFrame(&s.frames[ids[0]])}
	for _, id := range ids[1:] {
		of, _ := rules.hides(&s.frames[id])
		list = fold(list, of)
	}
	return list
}

func reportFrame(f *format.Frame) Frame {
	return Frame{Func: frameName(f), File: f.File, Line: f.Line, Module: f.Module}
}

// fold counts one more hidden frame behind those in the list.
func fold(list []Frame, of string) []Frame {
	if n := len(list); n == 0 || list[n-1].Folded == 0 {
		list = append(list, Frame{})
	}
	last := &list[len(list)-1]
	last.Folded++
	if !slices.Contains(last.Of, of) {
		last.Of = append(last.Of, of)
	}
	return list
}

// cutShort ends the list with so many more frames.
func cutShort(list []Frame, more int) []Frame {
	if n := len(list); n > 0 && list[n-1].Folded > 0 {
		more += list[n-1].Folded
		list = list[:n-1]
	}
	return append(list, Frame{Folded: more})
}

// named returns the frames of a list that stand for themselves.
func named(list []Frame) []Frame {
	frames := make([]Frame, 0, len(list))
	for _, f := range list {
		if f.Folded == 0 {
			frames = append(frames, f)
		}
	}
	return frames
}

// kept returns the frames of a stack that rules do not hide, or its first one.
func (s *stackTable) kept(stack int32, rules *FrameRules) []int32 {
	var list []int32
	ids := s.stacks[stack]
	for _, id := range ids {
		if _, hidden := rules.hides(&s.frames[id]); !hidden {
			list = append(list, id)
		}
	}
	if len(list) == 0 && len(ids) > 0 {
		return ids[:1]
	}
	return list
}

package stack

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// UnknownClass is the name of a module whose class could not be read.
const UnknownClass = "?"

// compiledFiles matches files that torch.compile generates.
var compiledFiles = regexp.MustCompile(`(^|/)torchinductor_[^/]+/.*\.py$`)

// ModulePath returns the classes of the modules in a stack, outermost first, such as "GPT2Model > GPT2Block > Linear".
// A class is that of self in the call of the module. Generated code of torch.compile follows as "compiled region FILE".
//
// A recording without classes of self has the classes that define the forward functions: HasSelfClasses says which. A
// stack of the backward pass without modules has BackwardNoModule and its autograd node. Other stacks have NoModule.
func (s *StackTable) ModulePath(stack int32) string {
	elements := s.selfClasses(stack)
	if elements == nil {
		elements = s.forwardClasses(stack)
	}
	if region := s.compiledRegion(stack); region != "" {
		elements = append(elements, region)
	}
	switch node := s.AutogradNode(stack); {
	case len(elements) > 0:
		return strings.Join(elements, " > ")
	case node != NoAutogradNode:
		return BackwardNoModule + " " + node
	case s.Phase(stack) == PhaseBackward:
		return BackwardNoModule
	}
	return NoModule
}

// HasSelfClasses reports whether a stack of the recording has the class of self of a module.
func (s *StackTable) HasSelfClasses() bool {
	return slices.ContainsFunc(s.Frames, func(f format.Frame) bool { return f.SelfClass != "" })
}

// HasModuleCalls reports whether a stack of the recording has the call of a module.
func (s *StackTable) HasModuleCalls() bool {
	for i := range s.Frames {
		if isModuleCall(&s.Frames[i]) {
			return true
		}
	}
	return false
}

// isModuleCall reports whether a frame is of a method with which PyTorch calls a module.
func isModuleCall(f *format.Frame) bool {
	return f.Type == query.FrameTypePython && strings.HasSuffix(f.File, "torch/nn/modules/module.py") &&
		strings.HasSuffix(f.Func, "_call_impl")
}

// selfClasses returns the classes of self in the calls of modules, outermost first. It returns nil if the stack has none.
// A module has one frame with its class: that of _wrapped_call_impl, or of _call_impl before PyTorch 2.1.
func (s *StackTable) selfClasses(stack int32) (classes []string) {
	known, method := false, ""
	for _, id := range s.Stacks[stack] {
		if f := &s.Frames[id]; f.SelfClass != "" {
			known, method = true, f.Func
		}
	}
	if !known {
		return nil
	}
	for _, id := range slices.Backward(s.Stacks[stack]) {
		switch f := &s.Frames[id]; {
		case f.SelfClass != "":
			classes = append(classes, f.SelfClass)
		case f.Func == method && isModuleCall(f):
			classes = append(classes, UnknownClass)
		}
	}
	return classes
}

// forwardClasses returns the classes that define the forward functions in a stack, outermost first.
func (s *StackTable) forwardClasses(stack int32) (classes []string) {
	for _, id := range slices.Backward(s.Stacks[stack]) {
		if class, ok := forwardClass(&s.Frames[id]); ok {
			classes = append(classes, class)
		}
	}
	return classes
}

// forwardClass returns the class of a Python function forward. Qualified names are those of CPython 3.11 or newer.
func forwardClass(f *format.Frame) (class string, ok bool) {
	if f.Type != query.FrameTypePython {
		return "", false
	}
	owner, ok := strings.CutSuffix(f.Func, ".forward")
	if !ok {
		return "", false
	}
	return owner[strings.LastIndexByte(owner, '.')+1:], true
}

// compiledRegion returns the innermost generated file of torch.compile in a stack, or "".
func (s *StackTable) compiledRegion(stack int32) string {
	for _, id := range s.Stacks[stack] {
		f := &s.Frames[id]
		if f.Type == query.FrameTypePython && compiledFiles.MatchString(f.File) {
			return "compiled region " + path.Base(f.File)
		}
	}
	return ""
}

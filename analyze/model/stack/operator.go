package stack

import (
	"regexp"
	"strings"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// OperatorGroups are the values of --group-by that name parts of a PyTorch program.
var OperatorGroups = []string{"operator", "autograd", "module", "phase"}

// Labels of stacks without the part.
const (
	NoOperator     = "(no operator)"
	NoAutogradNode = "(not in autograd)"
	NoModule       = "(no module)"
	// BackwardNoModule precedes the node of the autograd graph: the backward pass calls no modules.
	BackwardNoModule = "(backward, no module)"
)

// Phases of a training step.
const (
	PhaseForward   = "forward"
	PhaseBackward  = "backward"
	PhaseOptimizer = "optimizer"
	PhaseOther     = "other"
)

// OperatorLabel returns the label of a stack by one of OperatorGroups.
func (s *StackTable) OperatorLabel(stack int32, by string) string {
	switch by {
	case "operator":
		return s.Operator(stack)
	case "autograd":
		return s.AutogradNode(stack)
	case "module":
		return s.ModulePath(stack)
	}
	return s.Phase(stack)
}

// Operator returns the innermost operator of PyTorch in a stack, such as aten::add_Tensor or c10d::allreduce_. It
// is the C++ name of the operator with its overload. A kernel that Triton's launcher starts has the operator
// "triton". Operator returns NoOperator for other stacks.
//
// PyTorch's dispatcher calls an operator of ATen by at::_ops::NAME::call, and one of c10d by a function of
// c10d::ops with the suffix CUDA: aten/src/ATen/templates/Operators.cpp and torch/csrc/distributed/c10d/Ops.cpp.
func (s *StackTable) Operator(stack int32) string {
	for _, id := range s.Stacks[stack] {
		f := &s.Frames[id]
		if f.Type == query.FrameTypePython {
			if tritonFiles.MatchString(f.File) {
				return TritonOperator
			}
			continue
		}
		if rest, ok := strings.CutPrefix(f.Func, "at::_ops::"); ok {
			if name, ok := strings.CutSuffix(rest, "::call"); ok {
				return "aten::" + name
			}
			continue
		}
		if rest, ok := strings.CutPrefix(f.Func, "c10d::ops::(anonymous namespace)::"); ok {
			if name, ok := strings.CutSuffix(rest, "CUDA"); ok {
				return "c10d::" + name
			}
		}
	}
	if s.CallingLibrary(stack) == "Triton" {
		return TritonOperator
	}
	return NoOperator
}

// TritonOperator is the operator of kernels that Triton starts.
const TritonOperator = "triton"

// tritonFiles matches the Python files that start kernels of Triton: those of Triton and of torch.compile.
var tritonFiles = regexp.MustCompile(`(^|/)(triton/runtime/(jit|autotuner)|torch/_inductor/runtime/\w+)\.py$`)

// autogradNodes matches the function that runs a node of PyTorch's autograd graph.
var autogradNodes = regexp.MustCompile(`^torch::autograd::(?:generated::)?(\w+)::apply$`)

// AutogradNode returns the innermost node of the autograd graph in a stack, such as AddmmBackward0. A node that is
// written in Python has the name of its function, such as Scale.backward. AutogradNode returns NoAutogradNode for
// stacks outside of the backward pass.
func (s *StackTable) AutogradNode(stack int32) string {
	python := ""
	for _, id := range s.Stacks[stack] {
		f := &s.Frames[id]
		if f.Type == query.FrameTypePython {
			if strings.HasSuffix(f.Func, ".backward") && !strings.HasPrefix(f.Func, "BackwardCFunction.") {
				python = f.Func
			}
			continue
		}
		m := autogradNodes.FindStringSubmatch(f.Func)
		switch {
		case m == nil:
		case m[1] == "PyNode" && python != "":
			return python
		default:
			return m[1]
		}
	}
	return NoAutogradNode
}

// Phase returns the part of a training step that a stack is of, one of the constants. Updates of weights are
// PhaseOptimizer, the backward thread of PyTorch is PhaseBackward, and forward functions of modules are PhaseForward.
func (s *StackTable) Phase(stack int32) string {
	phase := PhaseOther
	for _, id := range s.Stacks[stack] {
		f := &s.Frames[id]
		if IsOptimizerFrame(f) {
			return PhaseOptimizer
		}
		if IsAutogradFrame(f) {
			phase = PhaseBackward
		} else if _, ok := forwardClass(f); (ok || isModuleCall(f)) && phase == PhaseOther {
			phase = PhaseForward
		}
	}
	return phase
}

// IsAutogradFrame reports whether a frame is of PyTorch's engine that runs the backward pass.
func IsAutogradFrame(f *format.Frame) bool {
	return strings.Contains(f.Func, "torch::autograd::Engine")
}

// optimizerNames matches names of functions and kernels that update weights.
var optimizerNames = regexp.MustCompile(`(?i)optim|adam|adagrad|rmsprop|(^|[^a-z])(sgd|lion|lamb)([^a-z]|$)` +
	`|(weights?|params?|parameters?)_?update|update_?(weights?|params?|parameters?)`)

// IsOptimizerName reports whether a function or a kernel updates weights by its name.
func IsOptimizerName(name string) bool { return optimizerNames.MatchString(name) }

// IsOptimizerFrame reports whether a function updates weights. Optimizer.zero_grad does not.
func IsOptimizerFrame(f *format.Frame) bool {
	if strings.Contains(f.Func, "zero_grad") {
		return false
	}
	return f.Type == query.FrameTypePython && strings.Contains(f.File, "torch/optim/") &&
		strings.HasSuffix(f.Func, "step") ||
		!strings.Contains(f.File, "torch/optim/") && IsOptimizerName(f.Func)
}

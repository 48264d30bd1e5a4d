package stack_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// tableOf returns a table with one stack, number 1. Frames are separated by lines, innermost first. Those of
// Python have a file after an @, and the class of self after an =.
func tableOf(text string) *stack.StackTable {
	s := &stack.StackTable{Stacks: make(map[int32][]int32)}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		f := format.Frame{Func: line, Type: "native", Module: "libtorch_cpu.so"}
		if name, file, ok := strings.Cut(line, "@"); ok {
			file, class, _ := strings.Cut(file, "=")
			f = format.Frame{Func: name, File: file, SelfClass: class, Type: "python"}
		}
		if strings.HasPrefix(line, "launch [") {
			f.Func, f.Module = "launch", strings.Trim(line[7:], "[]")
		}
		s.Stacks[1] = append(s.Stacks[1], int32(len(s.Frames)))
		s.Frames = append(s.Frames, f)
	}
	return s
}

// Stacks of PyTorch 2.11, cut to the frames that matter.
var operatorCases = []struct {
	name, frames                      string
	operator, autograd, module, phase string
}{
	{
		"forward", `
			at::native::addmm_out_cuda_impl
			at::_ops::addmm::redispatch
			torch::autograd::VariableType::addmm
			at::_ops::addmm::call
			at::_ops::linear::call
			Linear.forward@torch/nn/modules/linear.py
			Module._call_impl@torch/nn/modules/module.py
			Sequential.forward@torch/nn/modules/container.py
			main.<locals>.step@train.py`,
		"aten::addmm", stack.NoAutogradNode, "Sequential > Linear", stack.PhaseForward,
	},
	{
		"only an inner dispatch", `
			at::native::mul_kernel
			at::_ops::mul_Tensor::redispatch
			main@train.py`,
		stack.NoOperator, stack.NoAutogradNode, stack.NoModule, stack.PhaseOther,
	},
	{
		"backward", `
			at::_ops::mm::call
			torch::autograd::generated::details::mm_mat1_backward
			torch::autograd::generated::AddmmBackward0::apply
			torch::autograd::Node::operator()
			torch::autograd::Engine::evaluate_function
			torch::autograd::Engine::thread_main`,
		"aten::mm", "AddmmBackward0", "(backward, no module) AddmmBackward0", stack.PhaseBackward,
	},
	{
		"backward in Python", `
			at::_ops::mul_Tensor::call
			Scale.backward@train.py
			BackwardCFunction.backward@torch/autograd/function.py
			torch::autograd::PyNode::apply
			torch::autograd::Engine::thread_main`,
		"aten::mul_Tensor", "Scale.backward", "(backward, no module) Scale.backward", stack.PhaseBackward,
	},
	{
		"recomputed forward in backward", `
			at::_ops::relu::call
			ReLU.forward@torch/nn/modules/activation.py
			CheckpointFunction.backward@torch/utils/checkpoint.py
			torch::autograd::PyNode::apply
			torch::autograd::Engine::thread_main`,
		"aten::relu", "CheckpointFunction.backward", "ReLU", stack.PhaseBackward,
	},
	{
		"collective", `
			ncclAllReduce
			c10d::ProcessGroupNCCL::allreduce
			c10d::ops::(anonymous namespace)::allreduce_CUDA
			torch::autograd::AccumulateGrad::apply
			torch::autograd::Engine::thread_main`,
		"c10d::allreduce_", "AccumulateGrad", "(backward, no module) AccumulateGrad", stack.PhaseBackward,
	},
	{
		"optimizer", `
			at::_ops::_fused_adamw_::call
			adamw@torch/optim/adamw.py
			AdamW.step@torch/optim/adamw.py
			main@train.py`,
		"aten::_fused_adamw_", stack.NoAutogradNode, stack.NoModule, stack.PhaseOptimizer,
	},
	{
		"zero_grad", `
			at::_ops::zero_::call
			Optimizer.zero_grad@torch/optim/optimizer.py`,
		"aten::zero_", stack.NoAutogradNode, stack.NoModule, stack.PhaseOther,
	},
	{
		"Triton", `
			launch [__triton_launcher.cpython-312-x86_64-linux-gnu.so]
			JITFunction.run@triton/runtime/jit.py
			GPT2Block.forward@model.py
			main.<locals>.GPT.forward@model.py`,
		"triton", stack.NoAutogradNode, "GPT > GPT2Block", stack.PhaseForward,
	},
	{
		"classes of self", `
			at::_ops::addmm::call
			Linear.forward@torch/nn/modules/linear.py
			Module._call_impl@torch/nn/modules/module.py
			Module._wrapped_call_impl@torch/nn/modules/module.py=QuantLinear
			Sequential.forward@torch/nn/modules/container.py
			Module._call_impl@torch/nn/modules/module.py
			Module._wrapped_call_impl@torch/nn/modules/module.py
			GPT.forward@model.py
			Module._call_impl@torch/nn/modules/module.py
			Module._wrapped_call_impl@torch/nn/modules/module.py=GPT`,
		"aten::addmm", stack.NoAutogradNode, "GPT > ? > QuantLinear", stack.PhaseForward,
	},
	{
		"classes of self before PyTorch 2.1", `
			at::_ops::relu::call
			ReLU.forward@torch/nn/modules/activation.py
			Module._call_impl@torch/nn/modules/module.py=Activation`,
		"aten::relu", stack.NoAutogradNode, "Activation", stack.PhaseForward,
	},
	{
		"torch.compile", `
			cuLaunchKernel
			CachingAutotuner.run@/x/torch/_inductor/runtime/triton_heuristics.py
			call@/tmp/torchinductor_root/ab/cab7x.py
			compile_wrapper@/x/torch/_dynamo/eval_frame.py
			Module._call_impl@/x/torch/nn/modules/module.py
			Module._wrapped_call_impl@/x/torch/nn/modules/module.py=OptimizedModule`,
		"triton", stack.NoAutogradNode, "OptimizedModule > compiled region cab7x.py", stack.PhaseForward,
	},
	{
		"backward of torch.compile", `
			cuLaunchKernel
			CachingAutotuner.run@/x/torch/_inductor/runtime/triton_heuristics.py
			call@/tmp/torchinductor_root/ab/cxyz.py
			CompiledFunctionBackward.backward@/x/torch/_functorch/_aot_autograd/runtime_wrappers.py
			torch::autograd::PyNode::apply
			torch::autograd::Engine::thread_main`,
		"triton", "CompiledFunctionBackward.backward", "compiled region cxyz.py", stack.PhaseBackward,
	},
	{"no frames", "", stack.NoOperator, stack.NoAutogradNode, stack.NoModule, stack.PhaseOther},
}

func TestOperatorLabels(t *testing.T) {
	testclass.Unit(t)
	for _, c := range operatorCases {
		s := tableOf(c.frames)
		for i, want := range []string{c.operator, c.autograd, c.module, c.phase} {
			if by := stack.OperatorGroups[i]; s.OperatorLabel(1, by) != want {
				t.Errorf("%s: %s is %q, not %q", c.name, by, s.OperatorLabel(1, by), want)
			}
		}
	}
}

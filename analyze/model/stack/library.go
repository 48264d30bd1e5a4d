package stack

import (
	"regexp"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// knownLibraries are libraries by the names of their files, as people call them.
var knownLibraries = []struct {
	file *regexp.Regexp
	name string
}{
	{regexp.MustCompile(`^lib(torch|c10|caffe2)`), "PyTorch"},
	{regexp.MustCompile(`^libcublas`), "cuBLAS"},
	{regexp.MustCompile(`^libcudnn`), "cuDNN"},
	{regexp.MustCompile(`^libnccl`), "NCCL"},
	{regexp.MustCompile(`^libcufft`), "cuFFT"},
	{regexp.MustCompile(`^libcusparse`), "cuSPARSE"},
	{regexp.MustCompile(`^libcusolver`), "cuSOLVER"},
	{regexp.MustCompile(`^libcurand`), "cuRAND"},
	{regexp.MustCompile(`^libcutensor`), "cuTENSOR"},
	{regexp.MustCompile(`^libnvshmem`), "NVSHMEM"},
	{regexp.MustCompile(`^libnvinfer`), "TensorRT"},
	{regexp.MustCompile(`^librmm`), "RMM"},
	{regexp.MustCompile(`^(libtriton|cuda_utils|__triton_launcher)`), "Triton"},
	{regexp.MustCompile(`^(libtensorflow|_pywrap_tensorflow)`), "TensorFlow"},
	{regexp.MustCompile(`^(xla_extension|libjax|xla_cuda|pjrt_c_api)`), "JAX"},
	{regexp.MustCompile(`^libonnxruntime`), "ONNX Runtime"},
}

// runtimeFunctions are those of the CUDA runtime that is linked into a program or library.
var runtimeFunctions = regexp.MustCompile(`^(libcudart_static_\w+|__cudart\w*|__cuda[A-Z]\w*|cuda[A-Z]\w*)$`)

// NoLibrary stands for memory of which the stack is not known.
const NoLibrary = "(not known)"

// LibraryOf names who asked the CUDA driver: the library, or program, of the innermost frame of a stack outside of the
// driver and the runtime.
func (s *Table) LibraryOf(stack int32) string {
	for _, id := range s.Stacks[stack] {
		f := &s.Frames[id]
		switch module := symbolize.ModuleName(f.Module); {
		case f.Type == query.FramePython:
			return "Python"
		case query.DriverModules.MatchString(module) || runtimeFunctions.MatchString(f.Func):
		case f.Module == "" || symbolize.IsUnknownCode(f.Module, f.Func):
			return NoLibrary
		default:
			return libraryName(f)
		}
	}
	return NoLibrary
}

func libraryName(f *format.Frame) string {
	module := symbolize.ModuleName(f.Module)
	for _, l := range knownLibraries {
		if l.file.MatchString(module) {
			return l.name
		}
	}
	return module
}

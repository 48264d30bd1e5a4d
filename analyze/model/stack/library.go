package stack

import (
	"regexp"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// knownLibraries maps file names of libraries to product names.
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

// cudaRuntimeFunctions matches functions of a CUDA runtime that is statically linked into a program
// or library.
var cudaRuntimeFunctions = regexp.MustCompile(`^(libcudart_static_\w+|__cudart\w*|__cuda[A-Z]\w*|cuda[A-Z]\w*)$`)

// UnknownLibrary is the name for memory whose stack is unknown.
const UnknownLibrary = "(not known)"

// CallingLibrary returns the library or program that called the CUDA driver: the module of the
// innermost frame outside the driver and the CUDA runtime. It returns UnknownLibrary if the stack
// is unknown.
func (s *StackTable) CallingLibrary(stack int32) string {
	for _, id := range s.Stacks[stack] {
		f := &s.Frames[id]
		switch module := symbolize.ModuleName(f.Module); {
		case f.Type == query.FrameTypePython:
			return "Python"
		case query.CUDADriverModules.MatchString(module) || cudaRuntimeFunctions.MatchString(f.Func):
		case f.Module == "" || symbolize.IsUnknownCode(f.Module, f.Func):
			return UnknownLibrary
		default:
			return libraryNameOfFrame(f)
		}
	}
	return UnknownLibrary
}

func libraryNameOfFrame(f *format.Frame) string {
	module := symbolize.ModuleName(f.Module)
	for _, l := range knownLibraries {
		if l.file.MatchString(module) {
			return l.name
		}
	}
	return module
}

//go:build linux

package probe

import (
	"slices"
	"strings"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// classByPrefix maps the beginning of a function's name to its class for --record. It applies to
// functions that the BPF programs count as CLASS_API. The first match counts.
var classByPrefix = []struct{ prefix, class string }{
	{"cuLaunch", format.RecordLaunch},
	{"cuGraphics", format.RecordMemory}, // graphics interop maps memory of other APIs
	{"cuGraph", format.RecordGraph},
	{"cuStreamBeginCapture", format.RecordGraph},
	{"cuStreamEndCapture", format.RecordGraph},
	{"cuStreamIsCapturing", format.RecordGraph},
	{"cuStream", format.RecordStream},
	{"cuEvent", format.RecordStream},
	{"cuGreenCtxStream", format.RecordStream},
	{"cuModule", format.RecordModule},
	{"cuLibrary", format.RecordModule},
	{"cuLink", format.RecordModule},
	{"cuFunc", format.RecordModule},
	{"cuKernel", format.RecordModule},
	{"cuMem", format.RecordMemory},
	{"cuMulticast", format.RecordMemory},
	{"cuTexObject", format.RecordMemory},
	{"cuSurfObject", format.RecordMemory},
	{"cuIpc", format.RecordMemory},
	{"cuImportExternalSemaphore", format.RecordStream},
	{"cuSignalExternal", format.RecordStream},
	{"cuWaitExternal", format.RecordStream},
	{"cuDestroyExternalSemaphore", format.RecordStream},
	{"cuImportExternalMemory", format.RecordMemory},
	{"cuExternalMemory", format.RecordMemory},
	{"cuDestroyExternalMemory", format.RecordMemory},
	{"cuDeviceGetDefaultMemPool", format.RecordMemory},
	{"cuDeviceGetMemPool", format.RecordMemory},
	{"cuDeviceSetMemPool", format.RecordMemory},
	{"cuCtxSetLimit", format.RecordMemory},
	// Contexts, devices and checkpoints give meaning to all other calls: always recorded.
	{"cuInit", ""},
	{"cuCtx", ""},
	{"cuDevice", ""},
	{"cuGreenCtx", ""},
	{"cuCheckpoint", ""},
	{"cuGLCtx", ""},
	{"cuVDPAUCtx", ""},
}

// recordClassOf returns the class of a function for Options.Classes, "" for functions that are
// always recorded. ok is false if classByPrefix has no prefix of the function.
func recordClassOf(call *bpf.ProbedFunction) (class string, ok bool) {
	switch call.Class {
	case bpf.CudaCallClassCLASS_MEMORY:
		return format.RecordMemory, true
	case bpf.CudaCallClassCLASS_LAUNCH:
		return format.RecordLaunch, true
	case bpf.CudaCallClassCLASS_COPY:
		return format.RecordCopy, true
	case bpf.CudaCallClassCLASS_SYNC:
		return format.RecordSync, true
	case bpf.CudaCallClassCLASS_ALLOCATOR:
		return format.RecordAllocator, true
	case bpf.CudaCallClassCLASS_COLLECTIVE:
		return format.RecordCollective, true
	}
	for _, p := range classByPrefix {
		if strings.HasPrefix(call.Name, p.prefix) {
			return p.class, true
		}
	}
	return "", false
}

// IsFunctionNeeded reports whether a recording of these classes needs the calls of a function: the
// function belongs to one of the classes, or is needed to interpret their calls. No classes means
// all.
func IsFunctionNeeded(call *bpf.ProbedFunction, classes []string) bool {
	if len(classes) == 0 {
		return true
	}
	if call.Class == bpf.CudaCallClassCLASS_ENGINE {
		return slices.ContainsFunc(classes, func(c string) bool {
			return c == format.RecordMemory || c == format.RecordLaunch || c == format.RecordAllocator
		})
	}
	class, _ := recordClassOf(call)
	if class == "" || slices.Contains(classes, class) {
		return true
	}
	has := func(list ...string) bool {
		return slices.ContainsFunc(list, func(c string) bool { return slices.Contains(classes, c) })
	}
	switch {
	case call.Memory != "": // graph nodes that allocate
		return has(format.RecordMemory)
	case isCaptureCall(call.Name): // a call on a capturing stream runs nothing
		return has(format.RecordMemory, format.RecordLaunch, format.RecordCopy, format.RecordGraph)
	case class == format.RecordModule: // some module functions supply the names of kernels
		namesKernels := call.Columns == bpf.ColumnsNewFunction || call.Effect == bpf.CudaCallEffectEFFECT_UNLOAD
		return namesKernels && has(format.RecordLaunch, format.RecordGraph)
	}
	return false
}

// isCaptureCall reports whether calls of a function start, end or fork a stream capture.
func isCaptureCall(name string) bool {
	return strings.HasPrefix(name, "cuStreamBeginCapture") || name == "cuStreamEndCapture" ||
		strings.HasPrefix(name, "cuEventRecord") || name == "cuStreamWaitEvent"
}

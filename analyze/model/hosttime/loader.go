package hosttime

import (
	"regexp"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// loaderUse is the part of a stack in loading data, or in a queue between processes.
type loaderUse uint8

const (
	loaderNone   loaderUse = iota
	loaderWaits            // the loader itself is innermost: it waits for its workers
	loaderInside           // the loader called the program's data set in this process
	loaderWorks            // a worker process that runs code of the program
	loaderIdle             // a worker process that waits for something to do
	queueWaits             // a queue between processes is innermost, and no loader is there
)

var (
	// loaderFiles are the Python files of PyTorch's DataLoader.
	loaderFiles = regexp.MustCompile(`(^|/)torch/utils/data/.*\.py$`)
	// queueFiles are those of queues between processes. A DataLoader uses them, too.
	queueFiles = regexp.MustCompile(`(^|/)multiprocessing/(queues|pool)\.py$`)
	// workerFiles are the files of the main functions of workers.
	workerFiles = regexp.MustCompile(`(^|/)torch/utils/data/_utils/worker\.py$`)
	// stdlibFiles are files of Python's standard library, which no frame of the program is in.
	stdlibFiles = regexp.MustCompile(
		`(^|/)lib(64)?/python[23][.\d]*t?/[\w/]*\.py$|^<|^(threading|queue|selectors|socket)\.py$`,
	)
)

// findLoaders returns the stacks with frames of a data loader or of a queue between processes.
func findLoaders(s *stack.StackTable) map[int32]loaderUse {
	found := make(map[int32]loaderUse)
	for id, frames := range s.Stacks {
		if use := loaderUseOf(s, frames); use != loaderNone {
			found[id] = use
		}
	}
	return found
}

// loaderUseOf classifies a stack, innermost frame first.
func loaderUseOf(s *stack.StackTable, frames []int32) loaderUse {
	inside, queued, use := false, false, loaderNone
	for _, id := range frames {
		f := &s.Frames[id]
		switch {
		case f.Type != query.FrameTypePython:
		case workerFiles.MatchString(f.File):
			if inside {
				return loaderWorks
			}
			return loaderIdle
		case loaderFiles.MatchString(f.File):
			if use == loaderNone {
				use = loaderWaits
				if inside {
					use = loaderInside
				}
			}
		case queueFiles.MatchString(f.File):
			queued = queued || !inside
		case isProgram(f):
			inside = inside || use == loaderNone
		}
	}
	if use == loaderNone && queued {
		return queueWaits
	}
	return use
}

// isProgram reports whether a Python frame is in code of the program, not in a framework or the standard
// library.
func isProgram(f *format.Frame) bool {
	return !symbolize.IsRuntimeLibrary(f.File) && !stdlibFiles.MatchString(f.File)
}

// findDrivers returns the stacks of calls of the CUDA driver: with its frames inside of all Python frames.
func findDrivers(s *stack.StackTable) map[int32]bool {
	found := make(map[int32]bool)
	for id, frames := range s.Stacks {
		for _, frame := range frames {
			f := &s.Frames[frame]
			if f.Type == query.FrameTypePython {
				break
			}
			if driverFile.MatchString(symbolize.ModuleName(f.Module)) {
				found[id] = true
				break
			}
		}
	}
	return found
}

// driverFile matches the library of the CUDA driver.
var driverFile = regexp.MustCompile(`^libcuda\.so`)

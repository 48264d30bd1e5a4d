//go:build linux

package hoststack

import (
	"errors"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
	"github.com/gpurec/gpurec/record/unwind/remote"
)

// Reasons of this package why a stack is not complete.
const (
	reasonMismatch     = "the Python frames do not match the native frames"
	reasonPythonMoving = "the thread ran while its Python frames were read"
	reasonMoving       = "the thread ran during each try"
	reasonNotSampled   = "the thread ran during each try, and got no sample"
	reasonTimeout      = "reading the memory of the process timed out"
	reasonDenied       = "reading the memory of the process needs CAP_SYS_PTRACE"
	reasonFileDenied   = "reading its files needs CAP_SYS_PTRACE and CAP_CHECKPOINT_RESTORE"
	reasonDeep         = "the thread runs, and has more than 16 KiB of stack"
)

// explain returns a more specific reason for an incomplete stack.
func (s *space) explain(err error, of *snapshot.Snapshot) error {
	switch {
	case errors.Is(err, remote.ErrUnreadable) && of.Sampled:
		return errors.New(reasonDeep)
	case errors.Is(err, remote.ErrUnreadable) && s.denied:
		return errors.New(reasonDenied)
	case errors.Is(err, remote.ErrNoTable) && s.isFileDenied:
		return errors.New(reasonFileDenied)
	}
	return err
}

// mergePython puts Python frames before the native frames of the interpreter loop that ran them. Each
// run of the loop ends with an entry frame. isLoop says which native frames are of the loop.
// isNativeComplete says that the native frames reach the first one; then, entry frames and loops
// must match. ok is false if they do not: the Python frames then follow the native ones.
func mergePython(
	native []format.Frame, isLoop []bool, python []cpython.Frame, isNativeComplete, isPythonComplete bool,
) (frames []format.Frame, ok bool) {
	entries, loops := 0, 0
	for i := range python {
		if python[i].IsEntry {
			entries++
		}
	}
	for _, loop := range isLoop {
		if loop {
			loops++
		}
	}
	ok = entries == loops || entries > loops && !isNativeComplete || entries < loops && !isPythonComplete
	rest := python
	for i := range native {
		if ok && isLoop[i] {
			n := countRun(rest)
			frames = appendPython(frames, rest[:n])
			rest = rest[n:]
		}
		frames = append(frames, native[i])
	}
	return appendPython(frames, rest), ok
}

// countRun returns the number of frames up to the first entry frame, with it.
func countRun(python []cpython.Frame) int {
	for i := range python {
		if python[i].IsEntry {
			return i + 1
		}
	}
	return len(python)
}

// appendPython appends Python frames.
func appendPython(frames []format.Frame, python []cpython.Frame) []format.Frame {
	for i := range python {
		f := &python[i]
		frames = append(frames, format.Frame{
			Func: f.Function, SystemName: f.Function, File: f.File, Line: int32(f.Line), Type: "python",
		})
	}
	return frames
}

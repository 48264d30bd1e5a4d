//go:build linux

package unwind

import (
	"fmt"
	"os"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"
	otelreporter "go.opentelemetry.io/ebpf-profiler/reporter"
	"go.opentelemetry.io/ebpf-profiler/reporter/samples"
)

// Frame is one frame of a stack.
type Frame struct {
	// Python reports whether the frame is Python code, with Function, File and Line. Other frames
	// have Module and Addr.
	Python         bool
	Function, File string
	Line           int
	// SelfClass is the class of self in a frame of the method with which PyTorch calls modules, ""
	// in other frames or if it could not be read.
	SelfClass string
	// Module is the ELF file of the frame, or nil if the profiler does not know it.
	Module *Module
	// Addr is the ELF virtual address of the calling instruction.
	Addr uint64
}

// fileKey identifies a file in the profiler's BPF maps.
type fileKey = host.FileID

// Frames decodes the frames of a stack in the chain's record. words are the words of Layout.Data,
// leaf first. classes are the words after them: the code object of a method of nn.Module, and the
// classes of self in its frames. Frames reads names of Python functions from the process, which should
// still exist. It is not safe for concurrent use.
func (u *Unwinder) Frames(pid int, words, classes []uint64) []Frame {
	frames := make([]Frame, 0, len(words)/2)
	var pythonWords []uint64
	var pythons []int
	for rest := libpf.EbpfFrame(words); len(rest) > 0; {
		n := int(rest.Length())
		if n == 0 || n > len(rest) {
			break
		}
		frame := rest[:n]
		rest = rest[n:]
		switch {
		case frame.Flags().Error():
		case frame.Type() == libpf.NativeFrame && n > 1:
			addr := frame.Data()
			if frame.Flags().ReturnAddress() {
				addr--
			}
			frames = append(frames, Frame{Module: u.reporter.moduleByFile(host.FileID(frame.Variable(0))), Addr: addr})
		case frame.Type() == libpf.PythonFrame:
			pythons = append(pythons, len(frames))
			pythonWords = append(pythonWords, frame...)
			frames = append(frames, Frame{Python: true})
		}
	}
	u.namePythons(pid, pythonWords, pythons, frames)
	setClasses(pythonWords, pythons, classes, frames)
	return frames
}

// namePythons sets the names of the Python frames at the given indexes.
func (u *Unwinder) namePythons(pid int, words []uint64, at []int, frames []Frame) {
	if len(at) == 0 {
		return
	}
	// The profiler reads structures of a running process, which may be hostile. If it panics, the
	// frames stay without names.
	defer func() { _ = recover() }()
	trace := &libpf.EbpfTrace{PID: libpf.PID(pid), TID: libpf.PID(pid), NumFrames: uint16(len(at))}
	trace.FrameData = trace.FrameDataBuf[:copy(trace.FrameDataBuf[:], words)]
	u.tracer.HandleTrace(trace)
	if u.reporter.trace == nil || len(u.reporter.trace.Frames) != len(at) {
		return
	}
	for i, handle := range u.reporter.trace.Frames {
		f := handle.Value()
		to := &frames[at[i]]
		to.Function, to.File, to.Line = f.FunctionName.String(), f.SourceFile.String(), int(f.SourceLine)
	}
}

// ReportTraceEvent stores the result of HandleTrace. It implements the profiler's TraceReporter.
func (r *reporter) ReportTraceEvent(trace *libpf.Trace, _ *samples.TraceEventMeta) error {
	r.trace = trace
	return nil
}

// maxOpenModules bounds the number of mapped ELF files that the recorder keeps open. A process can
// map any number of files.
const maxOpenModules = 1536

// ReportExecutable opens each new file that a process has mapped. It implements the profiler's
// ExecutableReporter.
func (r *reporter) ReportExecutable(e *otelreporter.ExecutableMetadata) {
	m := &Module{Path: e.Mapping.Path}
	// The link in /proc/PID/map_files opens exactly the mapped file, even if its path has changed.
	path := fmt.Sprintf("/proc/%d/map_files/%x-%x", e.Process.PID(), e.Mapping.Vaddr, e.Mapping.Vaddr+e.Mapping.Length)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.modules == nil {
		r.modules = make(map[fileKey]*Module)
	}
	key := host.FileIDFromLibpf(e.MappingFile.Value().FileID)
	if r.modules[key] != nil || len(r.modules) == maxOpenModules {
		return
	}
	// opening a device can have side effects
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		m.File, _ = os.Open(path) // on error, its frames have no names
	}
	r.modules[key] = m
}

// moduleByFile returns the mapped ELF file with a file ID of the profiler, or nil.
func (r *reporter) moduleByFile(key fileKey) *Module {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.modules[key]
}

// close closes the mapped ELF files that ReportExecutable has opened.
func (r *reporter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, m := range r.modules {
		if m.File != nil {
			m.File.Close()
		}
		delete(r.modules, key)
	}
}

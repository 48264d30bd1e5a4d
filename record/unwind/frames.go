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
	// Python says that Function, File and Line are known; else Module and Addr are.
	Python         bool
	Function, File string
	Line           int
	// Module is the file, nil if the profiler does not know it.
	Module *Module
	// Addr is the ELF virtual address of the instruction that calls.
	Addr uint64
}

// fileKey is how the profiler's programs name a file.
type fileKey = host.FileID

// Frames reads a stack as the chain left it in the record: words of frames, leaf first.
// Names of Python functions are read from the process, which should still be there.
// Frames is not safe for concurrent use.
func (u *Unwinder) Frames(pid int, words []uint64) []Frame {
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
			frames = append(frames, Frame{Module: u.reporter.module(host.FileID(frame.Variable(0))), Addr: addr})
		case frame.Type() == libpf.PythonFrame:
			pythons = append(pythons, len(frames))
			pythonWords = append(pythonWords, frame...)
			frames = append(frames, Frame{Python: true})
		}
	}
	u.namePythons(pid, pythonWords, pythons, frames)
	return frames
}

// namePythons names the frames at the given indexes.
func (u *Unwinder) namePythons(pid int, words []uint64, at []int, frames []Frame) {
	if len(at) == 0 {
		return
	}
	// The profiler reads structures of a process that runs on, or that means harm. What it
	// trips over must not end the recording: the frames then have no names.
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

// ReportTraceEvent implements the profiler's TraceReporter: HandleTrace calls it.
func (r *reporter) ReportTraceEvent(trace *libpf.Trace, _ *samples.TraceEventMeta) error {
	r.trace = trace
	return nil
}

// maxModules bounds the files that are kept open, of which a process may map any number.
const maxModules = 1536

// ReportExecutable implements the profiler's ExecutableReporter: it is called for every
// new file that a process has mapped.
func (r *reporter) ReportExecutable(e *otelreporter.ExecutableMetadata) {
	m := &Module{Path: e.Mapping.Path}
	// The kernel's own link leads to this very file, also when its path does not.
	path := fmt.Sprintf("/proc/%d/map_files/%x-%x", e.Process.PID(), e.Mapping.Vaddr, e.Mapping.Vaddr+e.Mapping.Length)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.modules == nil {
		r.modules = make(map[fileKey]*Module)
	}
	key := host.FileIDFromLibpf(e.MappingFile.Value().FileID)
	if r.modules[key] != nil || len(r.modules) == maxModules {
		return
	}
	// a device may do something when it is opened
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		m.File, _ = os.Open(path) // or its frames have no names
	}
	r.modules[key] = m
}

func (r *reporter) module(key fileKey) *Module {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.modules[key]
}

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

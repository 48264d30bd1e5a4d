package analyze

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// stackTable holds the distinct stacks of a recording, each distinct frame once.
type stackTable struct {
	frames []format.Frame
	stacks map[int32][]int32 // stack id → frames, leaf first
	// unnamed counts stored frames that have no function name, of all stored.
	unnamed, stored int64
}

func (t *Timeline) readStacks() error {
	t.stacks.stacks = make(map[int32][]int32)
	ids := make(map[format.Frame]int32)
	return t.rec.Rows(func(r *format.Row) error {
		if r.Kind == format.KindStack {
			t.stacks.add(r, ids)
		}
		return nil
	}, format.ClassStack)
}

func (s *stackTable) add(r *format.Row, ids map[format.Frame]int32) {
	stack := make([]int32, len(r.Frames))
	for i, f := range r.Frames {
		id, ok := ids[f]
		if !ok {
			id = int32(len(s.frames))
			ids[f] = id
			s.frames = append(s.frames, f)
		}
		stack[i] = id
		s.stored++
		if f.Func == "" {
			s.unnamed++
		}
	}
	s.stacks[r.StackID] = stack
}

// unsymbolizedPct is the share of stored frames without a function name.
func (s *stackTable) unsymbolizedPct() float64 { return percent(s.unnamed, s.stored) }

// driverModules are the libraries whose frames say nothing about the program: the
// CUDA driver and runtime, through which every call goes.
var driverModules = regexp.MustCompile(`^lib(cuda|cudart)\.so`)

// isDriver reports whether the frame belongs to the CUDA driver or runtime.
func isDriver(f *format.Frame) bool { return driverModules.MatchString(moduleBase(f)) }

// moduleBase is the file name of the frame's module; the target may have been a
// process of any system, so both separators count.
func moduleBase(f *format.Frame) string {
	return path.Base(strings.ReplaceAll(f.Module, `\`, "/"))
}

// plumbing are the libraries that stand between a program and the GPU. It must be
// what record chooses a call's site by, so that sites and functions agree.
var plumbing = regexp.MustCompile(`^(libcuda|libcudart|libnvidia|libc10|libtorch|libcublas|libcudnn|libnccl|libpython|libc|libstdc\+\+|libpthread|ld-linux)[-.\w]*\.so`)

// userFrame returns the frame of the program's own code that made the call: the
// first above the probed function and the plumbing, or what comes closest.
func (s *stackTable) userFrame(stack int32) (*format.Frame, bool) {
	frames := s.stacks[stack]
	for i, id := range frames {
		if f := &s.frames[id]; i > 0 && !plumbing.MatchString(moduleBase(f)) {
			return f, true
		}
	}
	if len(frames) == 0 {
		return nil, false
	}
	return &s.frames[frames[min(1, len(frames)-1)]], true
}

// shown returns the frames of a stack as a report shows them: leaf first, at most
// limit (0: all), without those of the CUDA libraries unless all is set.
func (s *stackTable) shown(stack int32, limit int, all bool) []Frame {
	var frames []Frame
	for _, id := range s.stacks[stack] {
		f := &s.frames[id]
		if !all && isDriver(f) {
			continue
		}
		if limit > 0 && len(frames) == limit {
			break
		}
		frames = append(frames, Frame{Func: frameName(f), File: f.File, Line: f.Line, Module: f.Module})
	}
	return frames
}

// frameName is the frame's function, or where it lies when that has no name.
func frameName(f *format.Frame) string {
	switch {
	case f.Func != "":
		return f.Func
	case f.Module != "":
		return fmt.Sprintf("%s+0x%x", moduleBase(f), f.Addr)
	}
	return fmt.Sprintf("0x%x", f.Addr)
}

package analyze

import (
	"regexp"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
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
func isDriver(f *format.Frame) bool { return driverModules.MatchString(symbolize.ModuleName(f.Module)) }

// userFrame returns the frame of the program's own code that made the call, as record
// chooses a call's site.
func (s *stackTable) userFrame(stack int32) (*format.Frame, bool) {
	frames := s.stacks[stack]
	i := symbolize.SiteFrame(len(frames), func(i int) (module, function string) {
		f := &s.frames[frames[i]]
		return f.Module, f.Func
	})
	if i < 0 {
		return nil, false
	}
	return &s.frames[frames[i]], true
}

// shown returns the frames of a stack as a report shows them: leaf first, at most
// limit (0: all), without those of the CUDA libraries and those of which nothing is
// known, unless all is set.
func (s *stackTable) shown(stack int32, limit int, all bool) []Frame {
	var frames []Frame
	for _, id := range s.stacks[stack] {
		f := &s.frames[id]
		if !all && (isDriver(f) || symbolize.IsStray(f.Module, f.Func)) {
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
func frameName(f *format.Frame) string { return symbolize.FrameName(f.Func, f.Module, f.Addr) }

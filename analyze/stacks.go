package analyze

import (
	"cmp"
	"regexp"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// stackTable holds the distinct stacks of a recording, each distinct frame once.
type stackTable struct {
	frames []format.Frame
	stacks map[int32][]int32 // stack id → frames, leaf first
	about  map[int32]stackAbout
	// What AddSource adds: frames that are inlined into the next one, and what stacks'
	// places in the program are called.
	inlined map[int32]bool
	placed  map[int32]string
	// unnamed counts stored frames that have no function name, of all stored.
	unnamed, stored int64
}

// stackAbout is what a recording says of a stack beside its frames.
type stackAbout struct {
	pid    int32
	status string
	reason string // why it is truncated
	site   string
}

// truncatedBy returns why a stack is truncated.
func truncatedBy(r *format.Row) string {
	if r.StackStatus != format.StackTruncated {
		return ""
	}
	return cmp.Or(r.Message, format.WhyOther)
}

func (t *Timeline) readStacks() error {
	t.stacks.stacks = make(map[int32][]int32)
	t.stacks.about = make(map[int32]stackAbout)
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
	s.about[r.StackID] = stackAbout{r.Pid, r.StackStatus, truncatedBy(r), r.Site}
}

// unsymbolizedPct is the share of stored frames without a function name.
func (s *stackTable) unsymbolizedPct() float64 { return percent(s.unnamed, s.stored) }

// driverModules are the libraries whose frames say nothing about the program: the
// CUDA driver and runtime, through which every call goes.
var driverModules = regexp.MustCompile(`^lib(cuda|cudart)\.so`)

// userFrame returns the frame of the program's own code that made the call, as record
// chooses a call's site.
func (s *stackTable) userFrame(stack int32) (*format.Frame, bool) {
	frames := s.stacks[stack]
	i := symbolize.SiteFrame(len(frames), func(i int) symbolize.Caller {
		f := &s.frames[frames[i]]
		return symbolize.Caller{Module: f.Module, Function: f.Func, File: f.File, Python: f.Type == framePython}
	})
	if i < 0 {
		return nil, false
	}
	return &s.frames[frames[i]], true
}

// frameName is the frame's function, or where it lies when that has no name.
func frameName(f *format.Frame) string { return symbolize.FrameName(f.Func, f.Module, f.Addr) }

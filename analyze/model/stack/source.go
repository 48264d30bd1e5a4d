package stack

import (
	"cmp"
	"errors"
	"math"
	"slices"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// SourceSummary is the result of Timeline.AddSourceLines.
type SourceSummary struct {
	// Modules is the number of files that contain native frames. Without has the paths of the files
	// for which no source line was found, those with the most frames first.
	Modules int
	Without []string
	// Err joins the errors of files and debuginfod servers, one line each. It is nil if there were
	// none.
	Err error
}

// SourceReader resolves native frames to source lines with debug information.
type SourceReader struct {
	Stacks *StackTable
	Finder *symbolize.Finder
	// Replacements maps a frame to the frames that replace it, innermost first.
	Replacements map[int32][]int32
}

// ResolveModule resolves the frames of one module. It reports whether any of them got a source
// line.
func (r *SourceReader) ResolveModule(key ModuleKey, ids []int32) (found bool, err error) {
	slices.SortFunc(ids, func(a, b int32) int { return cmp.Compare(r.Stacks.Frames[a].Addr, r.Stacks.Frames[b].Addr) })
	for file, err := range r.Finder.Files(key.File, key.BuildID) {
		if err != nil {
			return false, err
		}
		if err := r.nameFrames(file, ids); err != nil {
			return false, err
		}
		source, err := symbolize.OpenSource(file)
		switch {
		case errors.Is(err, symbolize.ErrNoDebugInfo):
			continue
		case err != nil:
			return false, err
		}
		found, err = r.addSourceLines(source, ids)
		return found, errors.Join(err, source.Close())
	}
	return false, nil
}

// nameFrames sets the function name of frames without one, from the file's symbol table.
func (r *SourceReader) nameFrames(file string, ids []int32) (err error) {
	frames := r.Stacks.Frames
	if !slices.ContainsFunc(ids, func(id int32) bool { return frames[id].Func == "" }) {
		return nil
	}
	object, err := symbolize.OpenObject(file)
	if err != nil {
		return err
	}
	for _, id := range ids {
		f := &frames[id]
		if f.Func != "" {
			continue
		}
		if s, _, ok := object.Lookup(uint64(f.Addr)); ok {
			f.Func, f.SystemName = symbolize.Demangle(s.Name), s.Name
		}
	}
	return object.Close()
}

// addSourceLines sets the source lines of frames. An unreadable address does not stop the others;
// the first error is returned at the end.
func (r *SourceReader) addSourceLines(source *symbolize.Source, ids []int32) (found bool, first error) {
	var at []symbolize.SourceFrame
	for i, id := range ids {
		addr := r.Stacks.Frames[id].Addr
		if i == 0 || addr != r.Stacks.Frames[ids[i-1]].Addr {
			var err error
			if at, err = source.Frames(uint64(addr)); err != nil && first == nil {
				first = err
			}
		}
		if len(at) > 0 {
			r.Replacements[id] = r.Stacks.addInlinedFrames(r.Stacks.Frames[id], at)
			found = found || slices.ContainsFunc(at, func(s symbolize.SourceFrame) bool { return s.File != "" })
		}
	}
	return found, first
}

// addInlinedFrames adds one frame for each function inlined at the frame's address, innermost
// first. The outermost frame is the recorded function and keeps its name.
func (s *StackTable) addInlinedFrames(f format.Frame, at []symbolize.SourceFrame) []int32 {
	var ids []int32
	for _, function := range at {
		frame := f
		frame.File, frame.Line = function.File, int32(min(function.Line, math.MaxInt32))
		if function.Func != "" && (function.Inlined || f.Func == "") {
			frame.Func, frame.SystemName = symbolize.Demangle(function.Func), function.Func
		}
		id := int32(len(s.Frames))
		s.Frames = append(s.Frames, frame)
		ids = append(ids, id)
		if function.Inlined {
			if s.inlined == nil {
				s.inlined = make(map[int32]bool)
			}
			s.inlined[id] = true
		}
	}
	return ids
}

// ReplaceFrames replaces frames in all stacks. The map gives the new frames for each old one.
func (s *StackTable) ReplaceFrames(instead map[int32][]int32) {
	for stack, ids := range s.Stacks {
		var frames []int32
		for _, id := range ids {
			if with, ok := instead[id]; ok {
				frames = append(frames, with...)
			} else {
				frames = append(frames, id)
			}
		}
		s.Stacks[stack] = frames
	}
}

// CountSameAddress returns how many frames, from the first, have the same address: a frame and the
// functions into which it is inlined.
func (s *StackTable) CountSameAddress(ids []int32) int {
	n := 1
	for n < len(ids) && s.inlined[ids[n-1]] && s.Frames[ids[n]].Addr == s.Frames[ids[0]].Addr {
		n++
	}
	return n
}

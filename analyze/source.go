package analyze

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// SourceSummary is what AddSource could do.
type SourceSummary struct {
	// Modules is how many files native frames lie in; Without are the paths of those of which no line was found, those with
	// the most frames first.
	Modules int
	Without []string
	// Err says, one line each, what went wrong with files and servers; nil if nothing did.
	Err error
}

// AddSource gives native frames file and line from debug information, makes calls that were inlined frames of their own, and
// names frames that the recorder could not name. Files are used only if they have the build id that was recorded. Frames that
// have a line, as those of Python do, stay as they are. It is called before reports are made; the recording is not changed.
func (t *Timeline) AddSource(finder *symbolize.Finder) SourceSummary {
	modules := make(map[moduleKey][]int32)
	for id := range t.stacks.frames {
		f := &t.stacks.frames[id]
		if f.Type == "native" && f.File == "" && strings.ContainsAny(f.Module, `/\`) {
			key := moduleKey{f.Module, f.BuildID}
			modules[key] = append(modules[key], int32(id))
		}
	}
	keys := slices.SortedFunc(maps.Keys(modules), func(a, b moduleKey) int {
		return cmp.Or(cmp.Compare(len(modules[b]), len(modules[a])), cmp.Compare(a.file, b.file), cmp.Compare(a.buildID, b.buildID))
	})
	summary := SourceSummary{Modules: len(keys)}
	r := sourceReader{stacks: &t.stacks, finder: finder, instead: make(map[int32][]int32)}
	var errs []error
	for _, key := range keys {
		found, err := r.module(key, modules[key])
		if !found {
			summary.Without = append(summary.Without, key.file)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", symbolize.ModuleName(key.file), err))
		}
	}
	summary.Err = errors.Join(errs...)
	t.stacks.replace(r.instead)
	t.placeStacks()
	return summary
}

// sourceReader looks frames up in debug information.
type sourceReader struct {
	stacks *stackTable
	finder *symbolize.Finder
	// instead is the frames, innermost first, that take the place of one.
	instead map[int32][]int32
}

// module looks up frames of one module. It reports whether the line of any of them was found.
func (r *sourceReader) module(key moduleKey, ids []int32) (found bool, err error) {
	slices.SortFunc(ids, func(a, b int32) int { return cmp.Compare(r.stacks.frames[a].Addr, r.stacks.frames[b].Addr) })
	for file, err := range r.finder.Files(key.file, key.buildID) {
		if err != nil {
			return false, err
		}
		if err := r.name(file, ids); err != nil {
			return false, err
		}
		source, err := symbolize.OpenSource(file)
		switch {
		case errors.Is(err, symbolize.ErrNoDebugInfo):
			continue
		case err != nil:
			return false, err
		}
		found, err = r.places(source, ids)
		return found, errors.Join(err, source.Close())
	}
	return false, nil
}

// name gives names to frames without one that the file has a symbol for.
func (r *sourceReader) name(file string, ids []int32) (err error) {
	frames := r.stacks.frames
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

// places gives frames their lines. One address that cannot be read does not keep the others from it: the first error is
// returned at the end.
func (r *sourceReader) places(source *symbolize.Source, ids []int32) (found bool, first error) {
	var at []symbolize.SourceFrame
	for i, id := range ids {
		addr := r.stacks.frames[id].Addr
		if i == 0 || addr != r.stacks.frames[ids[i-1]].Addr {
			var err error
			if at, err = source.Frames(uint64(addr)); err != nil && first == nil {
				first = err
			}
		}
		if len(at) > 0 {
			r.instead[id] = r.stacks.expand(r.stacks.frames[id], at)
			found = found || slices.ContainsFunc(at, func(s symbolize.SourceFrame) bool { return s.File != "" })
		}
	}
	return found, first
}

// expand adds a frame per function at the address of one frame, innermost first. The outermost one is the function that was
// recorded and keeps that name.
func (s *stackTable) expand(f format.Frame, at []symbolize.SourceFrame) []int32 {
	var ids []int32
	for _, function := range at {
		frame := f
		frame.File, frame.Line = function.File, int32(min(function.Line, math.MaxInt32))
		if function.Func != "" && (function.Inlined || f.Func == "") {
			frame.Func, frame.SystemName = symbolize.Demangle(function.Func), function.Func
		}
		id := int32(len(s.frames))
		s.frames = append(s.frames, frame)
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

// replace puts frames in the place of others in all stacks.
func (s *stackTable) replace(instead map[int32][]int32) {
	for stack, ids := range s.stacks {
		var frames []int32
		for _, id := range ids {
			if with, ok := instead[id]; ok {
				frames = append(frames, with...)
			} else {
				frames = append(frames, id)
			}
		}
		s.stacks[stack] = frames
	}
}

// sameCode returns how many frames from the first on lie at one address: that frame and those that it is inlined into.
func (s *stackTable) sameCode(ids []int32) int {
	n := 1
	for n < len(ids) && s.inlined[ids[n-1]] && s.frames[ids[n]].Addr == s.frames[ids[0]].Addr {
		n++
	}
	return n
}

// placeStacks notes for every stack whose place in the program has a line now what reports call that place, instead of what was
// recorded.
func (t *Timeline) placeStacks() {
	t.stacks.placed = make(map[int32]string)
	for stack := range t.stacks.stacks {
		if f, ok := t.stacks.userFrame(stack); ok && f.Type == "native" && f.File != "" {
			t.stacks.placed[stack] = symbolize.PlaceName(frameName(f), f.File, f.Line)
		}
	}
}

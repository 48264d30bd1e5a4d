package timeline

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// AddSourceLines adds file and line from debug information to native frames. It adds frames for
// inlined calls, and names frames without a function name. A file is used only if its build ID
// matches the recorded one. Frames with a line, such as Python frames, do not change. Call it
// before making reports; it does not change the recording.
func (t *Timeline) AddSourceLines(finder *symbolize.Finder) stack.SourceSummary {
	modules := make(map[stack.ModuleKey][]int32)
	for id := range t.Stacks.Frames {
		f := &t.Stacks.Frames[id]
		if f.Type == "native" && f.File == "" && strings.ContainsAny(f.Module, `/\`) {
			key := stack.ModuleKey{File: f.Module, BuildID: f.BuildID}
			modules[key] = append(modules[key], int32(id))
		}
	}
	keys := slices.SortedFunc(maps.Keys(modules), func(a, b stack.ModuleKey) int {
		return cmp.Or(
			cmp.Compare(len(modules[b]), len(modules[a])),
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.BuildID, b.BuildID),
		)
	})
	summary := stack.SourceSummary{Modules: len(keys)}
	r := stack.SourceReader{Stacks: &t.Stacks, Finder: finder, Replacements: make(map[int32][]int32)}
	var errs []error
	for _, key := range keys {
		found, err := r.ResolveModule(key, modules[key])
		if !found {
			summary.Without = append(summary.Without, key.File)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", symbolize.ModuleName(key.File), err))
		}
	}
	t.Stacks.ReplaceFrames(r.Replacements)
	summary.Err = errors.Join(append(errs, t.setStackSites())...)
	t.keepOpened()
	return summary
}

// setStackSites sets the call site of every stack whose call site now has a source line. Reports
// show it instead of the recorded site.
// Stacks of class host have another rule, because they do not begin with a call.
func (t *Timeline) setStackSites() error {
	isHost, err := t.findHostStacks()
	t.Stacks.Sites = make(map[int32]string)
	for stackID := range t.Stacks.Stacks {
		find := t.Stacks.UserFrame
		if isHost[stackID] {
			find = t.Stacks.HostLine
		}
		if f, ok := find(stackID); ok && f.Type == "native" && f.File != "" {
			t.Stacks.Sites[stackID] = symbolize.NameWithLine(query.FrameName(f), f.File, f.Line)
		}
	}
	return err
}

// findHostStacks returns the numbers of the stacks of class host.
func (t *Timeline) findHostStacks() (map[int32]bool, error) {
	isHost := make(map[int32]bool)
	var ids []int32
	for _, g := range t.Host {
		ids = g.Int32("stack_id", ids)
		if err := g.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
		for _, id := range ids {
			isHost[id] = true
		}
	}
	return isHost, nil
}

// readStacks reads the stacks of Rec. ids has the indexes of the frames that are known.
func (t *Timeline) readStacks(ids map[format.Frame]int32) error {
	return t.Rec.Rows(func(r *format.Row) error {
		if r.Kind == format.KindStack {
			t.Stacks.AddStack(r, ids)
		}
		return nil
	}, format.ClassStack)
}

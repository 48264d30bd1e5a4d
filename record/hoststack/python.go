//go:build linux

package hoststack

import (
	"fmt"
	"path"

	"github.com/gpurec/gpurec/record/hoststack/cpython"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
	"github.com/gpurec/gpurec/record/unwind/remote"
)

// pythonThreads are the Python threads of a process in one round.
type pythonThreads struct {
	interpreter *cpython.Interpreter
	byPointer   map[uint64]cpython.Thread
	byNativeID  map[uint64]cpython.Thread
}

// findPython returns the interpreter of the process, nil if it has none. An error says why its frames
// cannot be read.
func (s *space) findPython() (*cpython.Interpreter, error) {
	for _, m := range s.maps {
		if !m.Executable() || m.Inode == 0 || !cpython.IsInterpreter(path.Base(m.Path)) {
			continue
		}
		mod := s.module(m)
		if mod == nil || mod.file == nil || mod.table == nil {
			continue
		}
		found, err := remote.DynamicSymbols(mod.file, cpython.SymbolNames)
		if err != nil {
			continue
		}
		vaddr, ok := mod.table.VAddr(m.Offset)
		if !ok {
			continue
		}
		symbols := make(map[string]cpython.Symbol)
		for name, symbol := range found {
			symbols[name] = cpython.Symbol{Addr: symbol.VAddr + m.Start - vaddr, Size: symbol.Size}
		}
		p, err := cpython.Find(s, symbols)
		if p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}

// listPythonThreads reads the thread states of the interpreter and matches them with threads.
func listPythonThreads(p *cpython.Interpreter, threads map[uint32]*snapshot.Snapshot) (*pythonThreads, error) {
	pointers, ids := make(map[uint64]bool), make(map[uint64]bool)
	for _, t := range threads {
		pointers[t.ThreadPointer], ids[uint64(t.NsTid)] = true, true
	}
	isThread := func(pointer, id uint64) bool { return pointers[pointer] || !pointerIsSelf && ids[id] }
	all, err := p.Threads(isThread)
	if err != nil {
		return nil, fmt.Errorf("interpreter %s: %w", p.Version(), err)
	}
	found := &pythonThreads{p, make(map[uint64]cpython.Thread), make(map[uint64]cpython.Thread)}
	for _, t := range all {
		found.byPointer[t.Pointer], found.byNativeID[t.NativeID] = t, t
	}
	return found, nil
}

// of returns the Python thread of a thread.
func (p *pythonThreads) of(s *snapshot.Snapshot) (cpython.Thread, bool) {
	if p == nil {
		return cpython.Thread{}, false
	}
	if pointerIsSelf {
		t, ok := p.byPointer[s.ThreadPointer]
		return t, ok
	}
	t, ok := p.byNativeID[uint64(s.NsTid)]
	return t, ok
}

// roots returns where the frames of all threads begin, by thread pointer.
func (p *pythonThreads) roots(threads map[uint32]*snapshot.Snapshot) map[uint64]snapshot.PythonRoot {
	roots := make(map[uint64]snapshot.PythonRoot)
	if p == nil {
		return roots
	}
	for _, s := range threads {
		t, ok := p.of(s)
		if !ok {
			continue
		}
		root := p.interpreter.Root(t)
		r := snapshot.PythonRoot{
			ThreadState: root.State, Frame: root.Frame, CframeFrame: root.CFrameFrame, Previous: root.Previous,
		}
		if root.HasCFrame {
			r.HasCframe = 1
		}
		roots[s.ThreadPointer] = r
	}
	return roots
}

package dwarf

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"math"
)

// Frame is one function at an address: the function that contains the code, or a function that the
// compiler inlined there.
type Frame struct {
	// Func is the linkage name (mangled for C++ and Rust). Without a linkage name it is the plain
	// name, and "" if both are unknown.
	Func string
	// File is the source path as the compiler saw it, "" if it is unknown.
	File string
	// Line counts from 1. 0 means unknown.
	Line int
	// Inlined reports whether the function was inlined into the function of the next frame.
	Inlined bool
}

// Frames returns the functions at an ELF virtual address, innermost first: the inlined functions,
// then the function that contains them. For a return address, pass the address minus 1. Frames
// returns no frames and no error for an address that the debug information does not describe. The
// first call reads the address ranges of all units.
func (d *Data) Frames(vaddr uint64) ([]Frame, error) {
	d.work = lookupWork
	if d.index == nil {
		if err := d.readIndex(); err != nil {
			return nil, err
		}
		d.work = lookupWork
	}
	number, ok := d.index.find(vaddr)
	if !ok {
		return nil, nil
	}
	u, err := d.unit(int(number))
	if err != nil {
		return nil, fmt.Errorf("read .debug_info: %w", err)
	}
	// Errors are reported only if there are no frames: a unit may be readable up to its damaged
	// part.
	functionsErr := d.readFunctions(u)
	chain, chainErr := d.callChain(u, vaddr)
	lines, linesErr := d.lineTable(u)
	frames := d.frames(u, chain, lines, vaddr)
	if len(frames) == 0 {
		return nil, errors.Join(functionsErr, chainErr, linesErr)
	}
	return frames, nil
}

// callChain returns the function at an address and the calls that were inlined there, outermost
// first.
func (d *Data) callChain(u *unit, vaddr uint64) ([]die, error) {
	offset, ok := u.functions.find(vaddr)
	if !ok {
		return nil, nil
	}
	const deepest = 1000 // compilers inline some dozens of levels
	var chain []die
	err := d.each(u, offset, func(e *die) bool {
		switch {
		case e.offset == offset:
			chain = append(chain, *e)
		case e.tag == dwarf.TagInlinedSubroutine && e.depth > chain[len(chain)-1].depth:
			_ = d.eachRange(u, e, func(r addressRange) { // a damaged range list covers no address
				if last := &chain[len(chain)-1]; r.has(vaddr) && last.offset != e.offset {
					chain = append(chain, *e)
				}
			})
		}
		return len(chain) < deepest
	})
	return chain, err
}

// frames converts a chain of functions, outermost first, to frames. The innermost frame has the
// line of the code at vaddr. Every other frame has the line of the call that was inlined into it.
func (d *Data) frames(u *unit, chain []die, lines *lineTable, vaddr uint64) []Frame {
	if lines == nil {
		lines = new(lineTable)
	}
	row, known := lines.find(vaddr)
	if len(chain) == 0 && !known {
		return nil
	}
	inner := Frame{Line: int(min(row.line, math.MaxInt32))}
	if known {
		inner.File = lines.path(uint64(row.file))
	}
	var frames []Frame
	for i := len(chain) - 1; i >= 0; i-- {
		e := &chain[i]
		inner.Func = d.functionName(u, *e)
		inner.Inlined = i > 0
		frames = append(frames, inner)
		inner = Frame{File: lines.path(e.callFile.n), Line: int(min(e.callLine.n, math.MaxInt32))}
		if !e.callFile.ok() {
			inner.File = ""
		}
	}
	if len(chain) == 0 {
		frames = append(frames, inner)
	}
	return frames
}

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
	d.work = maxWorkPerLookup
	if d.index == nil {
		if err := d.readUnitRanges(); err != nil {
			return nil, err
		}
		d.work = maxWorkPerLookup
	}
	number, ok := d.index.findInnermost(vaddr)
	if !ok {
		return nil, nil
	}
	u, err := d.loadUnit(int(number))
	if err != nil {
		return nil, fmt.Errorf("read .debug_info: %w", err)
	}
	// Errors are reported only if there are no frames: a unit may be readable up to its damaged
	// part.
	functionsErr := d.readFunctions(u)
	chain, chainErr := d.inlinedCallChain(u, vaddr)
	lines, linesErr := d.lineTableOfUnit(u)
	frames := d.framesOfChain(u, chain, lines, vaddr)
	if len(frames) == 0 {
		return nil, errors.Join(functionsErr, chainErr, linesErr)
	}
	return frames, nil
}

// inlinedCallChain returns the function at an address and the calls that were inlined there,
// outermost first.
func (d *Data) inlinedCallChain(u *debugUnit, vaddr uint64) ([]debugEntry, error) {
	offset, ok := u.functions.findInnermost(vaddr)
	if !ok {
		return nil, nil
	}
	const deepest = 1000 // compilers inline some dozens of levels
	var chain []debugEntry
	err := d.walkDIEs(u, offset, func(e *debugEntry) bool {
		switch {
		case e.offset == offset:
			chain = append(chain, *e)
		case e.tag == dwarf.TagInlinedSubroutine && e.depth > chain[len(chain)-1].depth:
			_ = d.eachDIERange(u, e, func(r addressRange) { // a damaged range list covers no address
				if last := &chain[len(chain)-1]; r.containsAddress(vaddr) && last.offset != e.offset {
					chain = append(chain, *e)
				}
			})
		}
		return len(chain) < deepest
	})
	return chain, err
}

// framesOfChain converts a chain of functions, outermost first, to frames. The innermost frame has
// the line of the code at vaddr. Every other frame has the line of the call that was inlined into
// it.
func (d *Data) framesOfChain(u *debugUnit, chain []debugEntry, lines *lineTable, vaddr uint64) []Frame {
	if lines == nil {
		lines = new(lineTable)
	}
	row, known := lines.findRow(vaddr)
	if len(chain) == 0 && !known {
		return nil
	}
	inner := Frame{Line: int(min(row.line, math.MaxInt32))}
	if known {
		inner.File = lines.sourcePath(uint64(row.file))
	}
	var frames []Frame
	for i := len(chain) - 1; i >= 0; i-- {
		e := &chain[i]
		inner.Func = d.functionName(u, *e)
		inner.Inlined = i > 0
		frames = append(frames, inner)
		inner = Frame{File: lines.sourcePath(e.callFile.n), Line: int(min(e.callLine.n, math.MaxInt32))}
		if !e.callFile.isPresent() {
			inner.File = ""
		}
	}
	if len(chain) == 0 {
		frames = append(frames, inner)
	}
	return frames
}

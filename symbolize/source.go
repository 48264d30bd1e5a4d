package symbolize

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// ErrNoDebugInfo is what OpenSource returns, wrapped, for a file without DWARF.
var ErrNoDebugInfo = errors.New("no debug information")

// Source knows from the DWARF of an ELF file which lines its code was compiled from and which calls were inlined there. It
// reads DWARF 2 to 5, compressed or not; not the pieces that -gsplit-dwarf and dwz keep in other files. The file is read at
// each look-up; kept in memory are address ranges, 24 bytes for each, and up to 64 MiB about units used last. A Source must not
// be used by several goroutines at once.
type Source struct {
	data    *dwarfData
	buildID string
	file    *os.File // nil if it is the caller's
}

// SourceFrame is one function at an address: the one that the code belongs to, or one that was inlined there.
type SourceFrame struct {
	// Func is the linkage name, mangled for C++ and Rust, or the plain name where there is no other; "" if it is not known.
	Func string
	// File is the path as the compiler saw it, Line counts from 1; "" and 0 if they are not known.
	File string
	Line int
	// Inlined says that the function was inlined into that of the next frame.
	Inlined bool
}

// OpenSource opens the file at path, an executable, a shared library or a separate debug file, and keeps it open until Close.
// For errors see NewSource.
func OpenSource(path string) (*Source, error) {
	file, size, err := openRegular(path)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	s, err := NewSource(file, size)
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s.file = file
	return s, nil
}

// NewSource reads the headers of the ELF file in r, which is size bytes long and is read from for as long as the Source is
// used. It returns ErrNoDebugInfo, wrapped, if the file has no DWARF.
func NewSource(r io.ReaderAt, size int64) (*Source, error) {
	f, err := newELF(r, size)
	if err != nil {
		return nil, err
	}
	data, err := newDWARF(f)
	if err != nil {
		return nil, fmt.Errorf("read debug information: %w", err)
	}
	return &Source{data: data, buildID: f.buildID()}, nil
}

// Close closes the file that OpenSource opened.
func (s *Source) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// BuildID returns the GNU build id in hexadecimal digits, "" if the file has none.
func (s *Source) BuildID() string { return s.buildID }

// Frames returns the functions at an ELF virtual address, innermost first: those inlined there, then the one whose code it is.
// For a return address ask for one byte less. There are none, without an error, where nothing is known. The first call reads
// the address ranges of all units.
func (s *Source) Frames(vaddr uint64) ([]SourceFrame, error) {
	d := s.data
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
	// Of a unit that is damaged further down, what was read stays of use.
	functionsErr := d.readFunctions(u)
	chain, chainErr := d.callChain(u, vaddr)
	lines, linesErr := d.lineTable(u)
	frames := d.frames(u, chain, lines, vaddr)
	if len(frames) == 0 {
		return nil, errors.Join(functionsErr, chainErr, linesErr)
	}
	return frames, nil
}

// callChain returns the function around an address and the calls inlined there, outermost first.
func (d *dwarfData) callChain(u *unit, vaddr uint64) ([]die, error) {
	offset, ok := u.functions.find(vaddr)
	if !ok {
		return nil, nil
	}
	const deepest = 1000 // compilers inline some dozens deep
	var chain []die
	err := d.each(u, offset, func(e *die) bool {
		switch {
		case e.offset == offset:
			chain = append(chain, *e)
		case e.tag == dwarf.TagInlinedSubroutine && e.depth > chain[len(chain)-1].depth:
			_ = d.eachRange(u, e, func(r addressRange) { // a damaged list covers nothing
				if last := &chain[len(chain)-1]; r.has(vaddr) && last.offset != e.offset {
					chain = append(chain, *e)
				}
			})
		}
		return len(chain) < deepest
	})
	return chain, err
}

// frames gives the functions of a chain, outermost first, their names and places: the innermost one that of the code itself, the
// others that of the call inlined into them.
func (d *dwarfData) frames(u *unit, chain []die, lines *lineTable, vaddr uint64) []SourceFrame {
	if lines == nil {
		lines = new(lineTable)
	}
	row, known := lines.find(vaddr)
	if len(chain) == 0 && !known {
		return nil
	}
	inner := SourceFrame{Line: int(min(row.line, math.MaxInt32))}
	if known {
		inner.File = lines.path(uint64(row.file))
	}
	var frames []SourceFrame
	for i := len(chain) - 1; i >= 0; i-- {
		e := &chain[i]
		inner.Func = d.functionName(u, *e)
		inner.Inlined = i > 0
		frames = append(frames, inner)
		inner = SourceFrame{File: lines.path(e.callFile.n), Line: int(min(e.callLine.n, math.MaxInt32))}
		if !e.callFile.ok() {
			inner.File = ""
		}
	}
	if len(chain) == 0 {
		frames = append(frames, inner)
	}
	return frames
}

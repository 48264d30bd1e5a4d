package symbolize

import (
	"fmt"
	"io"
	"os"

	"github.com/gpurec/gpurec/symbolize/dwarf"
	"github.com/gpurec/gpurec/symbolize/elffile"
)

// ErrNoDebugInfo is the error of OpenSource and NewSource for a file without DWARF.
var ErrNoDebugInfo = dwarf.ErrNone

// SourceFrame is one function at an address, with its source line.
type SourceFrame = dwarf.Frame

// Source finds the source lines and inlined calls of an ELF file's code in DWARF 2 to 5, compressed
// or not. It does not read the separate files of -gsplit-dwarf and dwz. Lookups read the file. A
// Source uses 24 bytes of memory for each address range, and up to 64 MiB to cache units. It is not
// safe for concurrent use.
type Source struct {
	data    *dwarf.Data
	buildID string
	file    *os.File // nil if the caller owns the file
}

// OpenSource opens an executable, a shared library or a separate debug file, and keeps it open
// until Close. Errors are those of NewSource.
func OpenSource(path string) (*Source, error) {
	file, size, err := openRegularFile(path)
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

// NewSource reads the headers of the ELF file in r, which has size bytes. r must stay readable
// while the Source is used. The error wraps ErrNoDebugInfo if the file has no DWARF.
func NewSource(r io.ReaderAt, size int64) (*Source, error) {
	f, err := elffile.New(r, size)
	if err != nil {
		return nil, err
	}
	data, err := dwarf.New(f)
	if err != nil {
		return nil, fmt.Errorf("read debug information: %w", err)
	}
	return &Source{data: data, buildID: f.BuildID()}, nil
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

// Frames returns the functions at an ELF virtual address, innermost first: the inlined functions,
// then the function that contains them. For a return address, pass the address minus 1. Frames
// returns no frames and no error for an address that the debug information does not describe. The
// first call reads the address ranges of all units.
func (s *Source) Frames(vaddr uint64) ([]SourceFrame, error) { return s.data.Frames(vaddr) }

//go:build linux

package remote

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// Table has the rules to unwind the code of one ELF file. It is immutable.
type Table struct {
	rules rules
	loads []elf.ProgHeader // executable segments
}

// rules are the unwind rules of one ELF file.
type rules interface {
	// find returns the rule for the code at an ELF virtual address. ok is false if there is none.
	find(vaddr uint64) (rule sdtypes.UnwindInfo, ok bool)
}

// Store keeps tables of files by a hash of all that a table is made of. A tablecache.Cache implements it. The results
// of Load are read-only, and valid until release is called.
type Store = interface {
	Load(key [32]byte) (firstPage uint64, pages []uint16, deltas []uint32, infos []byte, release func(), ok bool)
	Store(key [32]byte, firstPage uint64, pages []uint16, deltas []uint32, infos []byte)
}

// errNoRule is the error of code without a rule.
var errNoRule = errors.New("no unwind rule")

// ReadTable reads the table of an ELF file. If the store has the table, the Table uses the memory of the store, and
// ReadTable takes about a millisecond for each MiB of .eh_frame; otherwise 10 ms. The store may be nil. The caller
// closes the file. A file that is broken, or that its owner cuts meanwhile, is an error.
func ReadTable(file *os.File, store Store) (*Table, error) {
	return readTable(file.Name(), store, func() (*pfelf.File, error) {
		return pfelf.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	})
}

// ReadImage reads the table of an ELF file in memory, such as the vDSO.
func ReadImage(image []byte) (*Table, error) {
	return readTable("[vdso]", nil, func() (*pfelf.File, error) {
		return pfelf.NewFile(bytes.NewReader(image), 0, false)
	})
}

// readTable reads the table of the file that open returns.
func readTable(name string, store Store, open func() (*pfelf.File, error)) (t *Table, err error) {
	// The module maps files. A file that is cut meanwhile raises a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			t, err = nil, fmt.Errorf("read unwind table of %s: %v", name, cause)
		}
	}()
	reference := pfelf.NewReferenceWithOpenFunc(name, noOtherFiles{}, open)
	defer reference.Close()
	file, err := reference.GetELF()
	if err != nil {
		return nil, fmt.Errorf("read unwind table of %s: %w", name, err)
	}
	t = new(Table)
	for i := range file.Progs {
		if p := &file.Progs[i]; p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			t.loads = append(t.loads, p.ProgHeader)
		}
	}
	if t.rules, err = readRules(reference, store); err != nil {
		return nil, fmt.Errorf("read unwind table of %s: %w", name, err)
	}
	return t, nil
}

// noOtherFiles opens no files: names in an ELF file could lead anywhere.
type noOtherFiles struct{}

func (noOtherFiles) OpenELF(string) (*pfelf.File, error) { return nil, io.EOF }

// VAddr converts an offset in the file to an ELF virtual address. Mappings begin at whole pages.
func (t *Table) VAddr(fileOffset uint64) (uint64, bool) {
	for i := range t.loads {
		p := &t.loads[i]
		if start := p.Off &^ 4095; fileOffset >= start && fileOffset-start < p.Filesz+(p.Off-start) {
			return fileOffset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// rule returns the rule for the code at an ELF virtual address.
func (t *Table) rule(vaddr uint64) (rule sdtypes.UnwindInfo, err error) {
	// The table may be in a file. Its disk can fail.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			if _, isFault := cause.(interface{ Addr() uintptr }); !isFault {
				panic(cause)
			}
			err = errNoRule
		}
	}()
	rule, ok := t.rules.find(vaddr)
	if !ok {
		return rule, errNoRule
	}
	return rule, nil
}

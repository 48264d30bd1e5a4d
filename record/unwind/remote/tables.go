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
	"sort"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
)

// Table has the rules to unwind the code of one ELF file. It is immutable.
type Table struct {
	intervals *sdtypes.IntervalData
	loads     []elf.ProgHeader // executable segments
}

// errNoRule is the error of code without a rule.
var errNoRule = errors.New("no unwind rule")

// ReadTable extracts the table of an ELF file. It needs about 10 ms for each MiB of .eh_frame. The
// caller closes the file. A file that is broken, or that its owner cuts meanwhile, is an error.
func ReadTable(file *os.File) (*Table, error) {
	return readTable(file.Name(), func() (*pfelf.File, error) {
		return pfelf.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	})
}

// ReadImage extracts the table of an ELF file in memory, such as the vDSO.
func ReadImage(image []byte) (*Table, error) {
	return readTable("[vdso]", func() (*pfelf.File, error) { return pfelf.NewFile(bytes.NewReader(image), 0, false) })
}

// readTable extracts the table of the file that open returns.
func readTable(name string, open func() (*pfelf.File, error)) (t *Table, err error) {
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
	if t.intervals, err = elfunwindinfo.ExtractELF(reference); err != nil {
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
func (t *Table) rule(vaddr uint64) (sdtypes.UnwindInfo, error) {
	block := t.intervals.Find(vaddr)
	if block == nil {
		return sdtypes.UnwindInfo{}, errNoRule
	}
	deltas := block.Deltas
	i := sort.Search(len(deltas), func(i int) bool { return uint64(deltas[i].Offset) > vaddr-block.Start })
	if i == 0 {
		return sdtypes.UnwindInfo{}, errNoRule
	}
	return deltas[i-1].Info, nil
}

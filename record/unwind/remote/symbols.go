//go:build linux

package remote

import (
	"fmt"
	"os"
	"runtime/debug"

	"go.opentelemetry.io/ebpf-profiler/libpf"
	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
)

// Symbol is a dynamic symbol: its ELF virtual address and its size in bytes.
type Symbol struct{ VAddr, Size uint64 }

// DynamicSymbols finds dynamic symbols of an ELF file by name, through its hash table. It leaves out
// those that the file does not define.
func DynamicSymbols(file *os.File, names []string) (found map[string]Symbol, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if cause := recover(); cause != nil {
			found, err = nil, fmt.Errorf("read symbols of %s: %v", file.Name(), cause)
		}
	}()
	ef, err := pfelf.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("read symbols of %s: %w", file.Name(), err)
	}
	defer ef.Close()
	found = make(map[string]Symbol)
	for _, name := range names {
		if s, err := ef.LookupSymbol(libpf.SymbolName(name)); err == nil && s.Address != 0 {
			found[name] = Symbol{uint64(s.Address), s.Size}
		}
	}
	return found, nil
}

//go:build linux

package library

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"

	"golang.org/x/arch/x86/x86asm"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/symbolize"
	"github.com/gpurec/gpurec/symbolize/elffile"
)

// engineFileName matches the file name of the library with PyTorch's autograd engine.
var engineFileName = regexp.MustCompile(`^libtorch_cpu(-[0-9a-f]+)?\.so$`)

// maxFunctionBytes bounds the code of a function that is searched for return instructions. That of
// torch::autograd::Engine::execute has about 3 KiB.
const maxFunctionBytes = 64 << 10

// findEngineProbe returns the probe of the autograd engine, or the reason why it cannot be probed. It reads a few pages
// of the library, which has 400 MB.
func findEngineProbe(file *os.File, size int64) (probes []Probe, missing string) {
	f, err := elffile.New(file, size)
	if err != nil {
		return nil, err.Error()
	}
	for row := range bpf.EngineFunctions {
		name := bpf.EngineFunctions[row].Name
		symbol, ok := findSymbol(f, name)
		if !ok {
			missing = "it exports no " + symbolize.Demangle(name) + " with the parameters of PyTorch 1.8 to 2.11"
			continue
		}
		probe, err := probeWithReturns(f, file, symbol)
		if err != nil {
			missing = symbolize.Demangle(name) + ": " + err.Error()
			continue
		}
		probe.Symbol, probe.Cookie = name, bpf.EngineCookie(row)
		return []Probe{probe}, ""
	}
	return nil, missing
}

// probeWithReturns returns a probe of a function and of its return instructions.
func probeWithReturns(f *elffile.File, file *os.File, symbol elf.Sym64) (Probe, error) {
	at, ok := fileOffset(f, symbol.Value)
	if !ok || symbol.Size == 0 || symbol.Size > maxFunctionBytes {
		return Probe{}, errors.New("the function has no code of a plausible size")
	}
	machine, err := readELFMachine(file)
	if err != nil {
		return Probe{}, err
	}
	code, err := f.Read(at, symbol.Size, maxFunctionBytes)
	if err != nil {
		return Probe{}, err
	}
	returns, err := findReturns(machine, code)
	if err != nil {
		return Probe{}, err
	}
	skip, emulated := chooseProbeOffset(machine, code[:min(32, len(code))])
	probe := Probe{FileOffset: at + uint64(skip), Skipped: skip, Emulated: emulated}
	for _, offset := range returns {
		probe.Returns = append(probe.Returns, at+offset)
	}
	return probe, nil
}

// fileOffset returns the offset in the file of a virtual address in executable code.
func fileOffset(f *elffile.File, vaddr uint64) (offset uint64, ok bool) {
	for i := range f.Segments {
		p := &f.Segments[i]
		if elffile.IsExecutable(p) && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			return vaddr - p.Vaddr + p.Off, true
		}
	}
	return 0, false
}

// findReturns returns the offsets of all return instructions of a function.
func findReturns(machine elf.Machine, code []byte) (offsets []uint64, err error) {
	switch machine {
	case elf.EM_X86_64:
		offsets, err = findX86Returns(code)
	case elf.EM_AARCH64:
		offsets = findARMReturns(code)
	}
	if err == nil && len(offsets) == 0 {
		err = errors.New("no return instruction was found")
	}
	return offsets, err
}

// findX86Returns reads instruction after instruction: a byte of another one may look like a return.
func findX86Returns(code []byte) (offsets []uint64, err error) {
	for at := 0; at < len(code); {
		if isEndbr(code[at:]) {
			at += endbrBytes
			continue
		}
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil || in.Op == 0 { // 0: only a prefix is known
			return nil, fmt.Errorf("unknown instruction at offset %d", at)
		}
		if in.Op == x86asm.RET {
			offsets = append(offsets, uint64(at))
		}
		at += in.Len
	}
	return offsets, nil
}

// findARMReturns returns the offsets of ret, retaa and retab. All instructions have 4 bytes.
func findARMReturns(code []byte) (offsets []uint64) {
	const ret, retMask, retaa, retab = 0xd65f0000, 0xfffffc1f, 0xd65f0bff, 0xd65f0fff
	for at := 0; at+4 <= len(code); at += 4 {
		in := binary.LittleEndian.Uint32(code[at:])
		if in&retMask == ret || in == retaa || in == retab {
			offsets = append(offsets, uint64(at))
		}
	}
	return offsets
}

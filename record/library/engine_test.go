//go:build linux

package library

import (
	"debug/elf"
	"os"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFindReturns looks for return instructions. Bytes of other instructions that look like one do not count.
func TestFindReturns(t *testing.T) {
	testclass.Unit(t)
	for name, c := range map[string]struct {
		machine elf.Machine
		code    []byte
		want    []uint64 // nil: an error
	}{
		"mov $0xc3,%eax; ret":  {elf.EM_X86_64, []byte{0xb8, 0xc3, 0, 0, 0, 0xc3}, []uint64{5}},
		"endbr64; ret; nop":    {elf.EM_X86_64, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0xc3, 0x90}, []uint64{4}},
		"je; ret; pop; ret":    {elf.EM_X86_64, []byte{0x74, 0x01, 0xc3, 0x5b, 0xc3}, []uint64{2, 4}},
		"jmp: no return":       {elf.EM_X86_64, []byte{0xe9, 0xc3, 0, 0, 0}, nil},
		"an unknown byte":      {elf.EM_X86_64, []byte{0xc3, 0x06, 0xc3}, nil},
		"a cut instruction":    {elf.EM_X86_64, []byte{0xc3, 0xb8, 0xc3}, nil},
		"arm64: mov, ret":      {elf.EM_AARCH64, []byte{0xe0, 0x03, 0x1f, 0xaa, 0xc0, 0x03, 0x5f, 0xd6}, []uint64{4}},
		"arm64: retaa":         {elf.EM_AARCH64, []byte{0xff, 0x0b, 0x5f, 0xd6}, []uint64{0}},
		"arm64: br is none":    {elf.EM_AARCH64, []byte{0x00, 0x02, 0x1f, 0xd6}, nil},
		"another architecture": {elf.EM_RISCV, []byte{0xc3}, nil},
		"nothing":              {elf.EM_X86_64, nil, nil},
	} {
		got, err := findReturns(c.machine, c.code)
		if (err == nil) != (c.want != nil) || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, c.want)
		}
	}
}

// TestEngineProbe finds the function of simulated engines. One of them has it under another name.
func TestEngineProbe(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		file  string
		found bool
	}{{"libtorch_cpu.so", true}, {"renamed/libtorch_cpu.so", false}, {"libc10_cuda.so", false}} {
		file, err := os.Open("../../build/simtorch/" + c.file)
		if err != nil {
			testclass.Missing(t, "simtorch is not built: make simtorch")
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		probes, missing := findEngineProbe(file, info.Size())
		if found := len(probes) == 1; found != c.found || found != (missing == "") {
			t.Errorf("%s: %+v, %q", c.file, probes, missing)
		}
		for _, p := range probes {
			code := make([]byte, 1)
			for _, at := range p.Returns {
				if _, err := file.ReadAt(code, int64(at)); err != nil || code[0] != 0xc3 && code[0] != 0xf3 {
					t.Errorf("%s: no return at %#x: %x, %v", c.file, at, code, err)
				}
			}
			if len(p.Returns) == 0 || p.Return {
				t.Errorf("%s: %+v", c.file, p)
			}
		}
	}
}

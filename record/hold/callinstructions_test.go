//go:build linux

package hold

import (
	"debug/elf"
	"os"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestCallSites(t *testing.T) {
	testclass.Unit(t)
	const base, function = 0x1000, 0x100a
	x86 := []byte{
		0x55,             // push %rbp
		0xe8, 4, 0, 0, 0, // 0x1001: call 0x100a
		0xe8, 0x10, 0, 0, 0, // call elsewhere
		0xe9, 0xfa, 0xff, 0xff, 0xff, // 0x100b: jmp 0x100a
	}
	if got := callInstructions(elf.EM_X86_64, x86, base, function); !slices.Equal(got, []uint64{0x1001, 0x100b}) {
		t.Errorf("x86-64: %#x", got)
	}
	// The same bytes within another instruction: mov $0x…e8, %rax.
	within := []byte{0x48, 0xb8, 0xe8, 3, 0, 0, 0, 0, 0, 0, 0xc3}
	if got := callInstructions(elf.EM_X86_64, within, base, function); got != nil {
		t.Errorf("a call within an instruction: %#x", got)
	}
	arm64 := []byte{
		0x02, 0, 0, 0x94, // 0x1000: bl 0x1008
		0xff, 0xff, 0xff, 0x97, // bl 0x1000
		0x00, 0x00, 0x00, 0x14, // 0x1008: b 0x1008
	}
	if got := callInstructions(elf.EM_AARCH64, arm64, base, 0x1008); !slices.Equal(got, []uint64{0x1000, 0x1008}) {
		t.Errorf("arm64: %#x", got)
	}
}

// TestLoaderOfThisMachine checks that the loader of this machine calls its function from several
// places, and not only through the address of the function.
func TestLoaderOfThisMachine(t *testing.T) {
	testclass.Unit(t)
	for _, path := range []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"} {
		file, err := os.Open(path)
		if err != nil {
			continue
		}
		defer file.Close()
		l, err := newLoader(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.sites) < 2 || len(l.sites) > 20 {
			t.Errorf("%s: sites %#x", path, l.sites)
		}
		for i := range l.sites {
			if l.sites[i]+l.toList[i] != l.sites[0]+l.toList[0] {
				t.Errorf("%s: the list is at different addresses", path)
			}
		}
		return
	}
	t.Skip("no glibc")
}

//go:build linux

package record

import (
	"debug/elf"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
)

func TestOldKernelsAreRefused(t *testing.T) {
	for release, ok := range map[string]bool{
		"6.18.44-fc": true, "5.15.0-91-generic": true, "6.1.0": true, "5.14.0-362.el9.x86_64": false, "4.18.0": false, "weird": true,
	} {
		if err := checkRelease(release); (err == nil) != ok {
			t.Errorf("%s: %v", release, err)
		}
	}
	want := "this kernel is Linux 5.10.0, recording needs 5.15 or newer"
	if err := checkRelease("5.10.0"); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestRefusedProgramsNameTheirCapabilities(t *testing.T) {
	refused := fmt.Errorf("map create: %w", unix.EPERM)
	for _, c := range []struct {
		have capabilities
		err  error
		want string
	}{
		{0, refused, "loading BPF programs needs CAP_BPF, CAP_PERFMON"},
		{1 << unix.CAP_BPF, refused, "loading BPF programs needs CAP_PERFMON (have CAP_BPF)"},
		{1<<unix.CAP_BPF | 1<<unix.CAP_PERFMON, refused, refused.Error()},
		{1 << unix.CAP_SYS_ADMIN, refused, refused.Error()},
		{0, unix.EINVAL, unix.EINVAL.Error()},
	} {
		if got := c.have.explainLoad(c.err).Error(); got != c.want {
			t.Errorf("with %x: %s", uint64(c.have), got)
		}
	}
}

func TestProbeOffset(t *testing.T) {
	for name, c := range map[string]struct {
		text     []byte
		offset   int
		emulated bool
	}{
		"push %rbp":                        {[]byte{0x55, 0x48, 0x89, 0xe5}, 0, true},
		"endbr64; push %rbp":               {[]byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, 4, true},
		"cmpl $1,x(%rip); je (libcuda)":    {[]byte{0x81, 0x3d, 1, 2, 3, 0, 1, 0, 0, 0, 0x74, 0x10}, 10, true},
		"nop; ret":                         {[]byte{0x90, 0xc3}, 0, true},
		"xor %eax,%eax; jmp":               {[]byte{0x31, 0xc0, 0xeb, 0x00}, 2, true},
		"mov %rdi,%rax; push":              {[]byte{0x48, 0x89, 0xf8, 0x55}, 3, true},
		"xor %edi,%edi; push: an argument": {[]byte{0x31, 0xff, 0x55}, 0, false},
		"sub $8,%rsp: the stack pointer":   {[]byte{0x48, 0x83, 0xec, 0x08, 0x55}, 0, false},
		"mov %eax,(%rdi): memory":          {[]byte{0x89, 0x07, 0x55}, 0, false},
		"ret":                              {[]byte{0xc3}, 0, false},
		"nothing":                          {nil, 0, false},
	} {
		offset, emulated := probeOffset(elf.EM_X86_64, c.text)
		if offset != c.offset || emulated != c.emulated {
			t.Errorf("%s: offset %d emulated %v, want %d %v", name, offset, emulated, c.offset, c.emulated)
		}
	}
	if offset, emulated := probeOffset(elf.EM_AARCH64, []byte{0x55}); offset != 0 || emulated {
		t.Error("only x86-64 code is understood")
	}
}

func TestParseStat(t *testing.T) {
	comm, start := parseStat([]byte("42 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 12345 20 21"))
	if comm != "a) b (c" || start != 123_450_000_000 {
		t.Errorf("%q %d", comm, start)
	}
	if comm, start := parseStat([]byte("garbage")); comm != "" || start != 0 {
		t.Errorf("%q %d", comm, start)
	}
}

// TestStacksOfANewProcessAreNamed makes the table look at a process before it has
// loaded anything, as record -- COMMAND does, and then asks for its code.
func TestStacksOfANewProcessAreNamed(t *testing.T) {
	self := uint32(os.Getpid())
	table := newStackTable(nil)
	defer table.close()
	space := table.space(self)
	space.maps = nil                                  // as if the mappings had been read too early,
	space.nextRefresh = time.Now().Add(1 * time.Hour) // and reading them had taken long
	pc := uint64(reflect.ValueOf(TestStacksOfANewProcessAreNamed).Pointer())
	chain, status := space.cut([]uint64{pc, pc + 1, 1 << 46})
	if len(chain) != 2 || status != format.StackTruncated {
		t.Errorf("chain %x, status %s", chain, status)
	}
	if frame, _ := space.frame(pc, false); !strings.HasSuffix(frame.Module, "record.test") || frame.Addr == 0 {
		t.Errorf("frame %+v", frame)
	}
}

//go:build linux

package unwind

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/host"
	"go.opentelemetry.io/ebpf-profiler/libpf"

	"github.com/gpurec/gpurec/internal/testclass"
)

// nativeFrame and pythonFrame encode a frame like the profiler's BPF programs.
func nativeFrame(file, addr uint64, isReturn bool) []uint64 {
	var flags libpf.FrameFlags
	if isReturn {
		flags = 1 << 1 // FRAME_FLAG_RETURN_ADDRESS in support/ebpf/frametypes.h
	}
	return []uint64{libpf.NewEbpfFrameHeader(libpf.NativeFrame, flags, 2, addr), file}
}

func pythonFrame(code, instruction uint64) []uint64 {
	return []uint64{libpf.NewEbpfFrameHeader(libpf.PythonFrame, 1<<2, 3, 0), code, instruction}
}

func TestFramesAreReadFromWords(t *testing.T) {
	testclass.Unit(t)
	u := new(Unwinder)
	module := &Module{Path: "/lib/libtorch.so"}
	u.reporter.modules = map[fileKey]*Module{host.FileID(7): module}
	var words []uint64
	words = append(words, nativeFrame(7, 0x1000, false)...)
	words = append(words, pythonFrame(0xdead, 4)...)
	words = append(words, nativeFrame(7, 0x2000, true)...)
	words = append(words, nativeFrame(8, 0x3000, true)...)
	// Without a profiler, naming the Python frame panics.
	got := u.Frames(1, words, nil)
	want := []Frame{{Module: module, Addr: 0x1000}, {Python: true}, {Module: module, Addr: 0x1fff}, {Addr: 0x2fff}}
	if len(got) != len(want) {
		t.Fatalf("%d frames, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("frame %d: %+v, want %+v", i, got[i], want[i])
		}
	}
}

func TestFramesOfAnyWords(t *testing.T) {
	testclass.Unit(t)
	u := new(Unwinder)
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		words := make([]uint64, r.IntN(20))
		for i := range words {
			words[i] = r.Uint64()
			if r.IntN(2) == 0 { // a valid header
				words[i] = libpf.NewEbpfFrameHeader(
					libpf.FrameType(r.IntN(16)),
					libpf.FrameFlags(r.IntN(16)),
					uint8(r.IntN(6)),
					r.Uint64()>>12,
				)
			}
		}
		if frames := u.Frames(1, words, nil); len(frames) > len(words) {
			t.Fatalf("%d frames of %d words", len(frames), len(words))
		}
	}
}

func TestKernelsThatMayFreezeAreNamedInOneLine(t *testing.T) {
	testclass.Unit(t)
	bug := "your kernel version 6.1.0 may be affected by a Linux kernel bug that can lead to system freezes.\nIf " +
		"you are certain.\nError: "
	for said, want := range map[string]string{
		bug + `open /sys/kernel/tracing/events/syscalls/sys_enter_bpf/id: permission denied`: "fix: the check needs " +
			"root, or CAP_DAC_READ_SEARCH to read /sys/kernel/tracing",
		bug + "kernel is not patched":  "fix: kernel is not patched",
		"failed to load eBPF maps: no": "start unwinder: failed to load eBPF maps: no",
	} {
		if got := startError(errors.New(said)).Error(); !strings.HasSuffix(got, want) || strings.Contains(got, "\n") {
			t.Errorf("of %q: %q", said, got)
		}
	}
}

func TestTruncationCauses(t *testing.T) {
	testclass.Unit(t)
	for code, want := range map[uint32]string{
		2:     "depth",
		5:     "depth",
		2002:  "python",
		4002:  "mapping",
		4012:  "mapping",
		4018:  "code",
		1:     "other",
		99999: "other",
	} {
		if got := TruncationCause(code); got != want {
			t.Errorf("TruncationCause(%d) = %s, want %s", code, got, want)
		}
	}
}

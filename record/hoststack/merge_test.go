//go:build linux

package hoststack

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/hoststack/cpython"
)

// TestMergePython merges stacks that are written as letters, innermost frame first: L is a frame of
// the interpreter loop, other capitals are native frames. Small letters are Python frames, "|" is
// behind an entry frame.
func TestMergePython(t *testing.T) {
	testclass.Unit(t)
	for _, test := range []struct {
		native, python           string
		isNativeCut, isPythonCut bool
		want                     string
		isMismatch               bool
	}{
		{native: "ABL", python: "xyz|", want: "ABxyzL"},
		{native: "ALBLC", python: "x|yz|", want: "AxLByzLC"},
		{native: "AB", python: "", want: "AB"},
		{native: "AL", python: "x|y|", isNativeCut: true, want: "AxLy"},
		{native: "ALBL", python: "x|", isPythonCut: true, want: "AxLBL"},
		{native: "ALBL", python: "x|y", isPythonCut: true, want: "AxLByL"},
		{native: "AL", python: "x|y|", want: "ALxy", isMismatch: true},
		{native: "ALBL", python: "x|", want: "ALBLx", isMismatch: true},
		{native: "A", python: "x|", want: "Ax", isMismatch: true},
	} {
		var native []format.Frame
		var isLoop []bool
		for _, letter := range strings.Split(test.native, "") {
			native, isLoop = append(native, format.Frame{Func: letter}), append(isLoop, letter == "L")
		}
		var python []cpython.Frame
		for _, letter := range strings.Split(test.python, "") {
			if letter == "|" {
				python[len(python)-1].IsEntry = true
			} else if letter != "" {
				python = append(python, cpython.Frame{Function: letter})
			}
		}
		frames, ok := mergePython(native, isLoop, python, !test.isNativeCut, !test.isPythonCut)
		got := ""
		for _, f := range frames {
			got += f.Func
		}
		if got != test.want || ok == test.isMismatch {
			t.Errorf("%s and %s: %s, %v, not %s", test.native, test.python, got, ok, test.want)
		}
	}
}

func TestCUDACallAndSystemCall(t *testing.T) {
	testclass.Unit(t)
	frames := []format.Frame{
		{Func: "ioctl", Module: "/lib/libc.so.6"},
		{Func: "cuGuessed", Module: "/lib/libcuda.so.580.1"},
		{Func: "cuStreamSynchronize", Module: "/lib/libcuda.so.580.1"},
		{Func: "cudaStreamSynchronize", Module: "/lib/libcudart.so.13"},
	}
	if got := findCUDACall(frames); got != "cuStreamSynchronize" {
		t.Errorf("the CUDA call is %q", got)
	}
	if got := findCUDACall(slices.Delete(frames, 1, 3)); got != "" {
		t.Errorf("the CUDA call is %q", got)
	}
	for function, want := range map[string]string{
		"__x64_sys_futex": "futex", "__arm64_sys_poll": "poll", "__do_sys_pause": "pause", "ksys_read": "read",
		"do_syscall_64": "",
	} {
		if got := findSystemCall([]format.Frame{{Func: "schedule"}, {Func: function}}, -1); got != want {
			t.Errorf("%s is the system call %q", function, got)
		}
	}
}

package symbolize

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// plumbing are the libraries that stand between a program and the GPU; the functions are those of a CUDA runtime that is linked
// into the program itself.
var (
	plumbing = regexp.MustCompile(`^(libcuda|libnvidia|libnvrtc|libcublas|libcudnn|libcufft|libcurand|libcusolver|libcusparse|libcutensor|libnccl|libc10|libtorch|libpython|ld-linux)[-.\w]*\.so` +
		`|^(libc|libstdc\+\+|libpthread)(-[\d.]+)?\.so`)
	plumbingFunctions = regexp.MustCompile(`^(libcudart_static_\w+|__cudart\w*|__cuda[A-Z]\w*|cuda[A-Z]\w*)$`)
)

// IsPlumbing reports whether a file, given by its path, is a library that calls only pass through on their way to the GPU.
func IsPlumbing(module string) bool { return plumbing.MatchString(ModuleName(module)) }

// ModuleName is the file name of a module's path; that may come from any system, so both separators count.
func ModuleName(module string) string { return path.Base(strings.ReplaceAll(module, `\`, "/")) }

// SiteFrame chooses the frame of a stack that stands for the place in the program that made the call. frame returns the module
// and the function of frame i, leaf first; frame 0 is the called function itself. It is the innermost frame of the program's
// own code, or where only plumbing is known the outermost frame of that with a name, or else the caller: frame 1. For a stack of
// one frame it is 0, for none -1.
func SiteFrame(frames int, frame func(i int) (module, function string)) int {
	best := min(1, frames-1)
	for i := 1; i < frames; i++ {
		module, function := frame(i)
		switch {
		case !IsPlumbing(module) && isOwn(module, function):
			return i
		case function != "":
			best = i
		}
	}
	return best
}

// isOwn reports whether a frame outside of the plumbing can be the program's code.
func isOwn(module, function string) bool {
	return !IsStray(module, function) && !plumbingFunctions.MatchString(function)
}

// IsStray reports whether a frame is an address that lies in no file and has no name: what a walk by frame pointers finds when it
// went astray, or code made at run time of which nothing is known.
func IsStray(module, function string) bool {
	return function == "" && !strings.ContainsAny(module, `/\`)
}

// FrameName is a frame's function, or where it lies when that has no name.
func FrameName(function, module string, addr int64) string {
	switch {
	case function != "":
		return function
	case module != "":
		return fmt.Sprintf("%s+0x%x", ModuleName(module), addr)
	}
	return fmt.Sprintf("0x%x", addr)
}

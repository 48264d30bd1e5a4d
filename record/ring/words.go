//go:build linux

package ring

import "unsafe"

// StackWords returns the n 64-bit words after the header of an unwound stack, or fewer if the
// record is shorter.
func StackWords(after []byte, n int) []uint64 {
	if n = min(n, len(after)/8); n == 0 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&after[0])), n)
}

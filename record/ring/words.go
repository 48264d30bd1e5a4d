//go:build linux

package ring

import "unsafe"

// Words are the words that follow the header of an unwound stack; there may be none.
func Words(after []byte, n int) []uint64 {
	if n = min(n, len(after)/8); n == 0 {
		return nil
	}
	return unsafe.Slice((*uint64)(unsafe.Pointer(&after[0])), n)
}

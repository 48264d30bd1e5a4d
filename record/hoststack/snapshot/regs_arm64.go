//go:build linux

package snapshot

// Words of user registers, in the order of the kernel's struct user_pt_regs.
const (
	regWords = 34
	regPC    = 32
	regSP    = 31
)

// Call returns the number of the system call in which the thread waits, and its arguments. The
// registers do not tell whether the thread is in a system call, so ok is always false.
func (s *Snapshot) Call() (number int64, arguments [6]uint64, ok bool) {
	const x8 = 8
	copy(arguments[:], s.Regs[:len(arguments)])
	return int64(s.Regs[x8]), arguments, false
}

//go:build linux

package snapshot

// Words of user registers, in the order of the kernel's struct pt_regs.
const (
	regWords = 21
	regSP    = 19
)

// Call returns the number of the system call in which the thread waits, and its first argument. ok is
// false for a thread that is not in a system call.
func (s *Snapshot) Call() (number int64, argument uint64, ok bool) {
	const origAX, di = 15, 14
	number = int64(s.Regs[origAX])
	return number, s.Regs[di], number >= 0 && number < 4096
}

//go:build linux

package snapshot

// Words of user registers, in the order of the kernel's struct user_pt_regs.
const (
	regWords = 34
	regSP    = 31
)

// Call returns the number of the system call in which the thread waits, and its first argument. ok is
// false for a thread that is not in a system call.
func (s *Snapshot) Call() (number int64, argument uint64, ok bool) { return 0, 0, false }

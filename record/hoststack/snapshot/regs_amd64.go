//go:build linux

package snapshot

// Words of user registers, in the order of the kernel's struct pt_regs.
const (
	regWords = 21
	regPC    = 16
	regSP    = 19
)

// Call returns the number of the system call in which the thread waits, and its arguments. ok is false
// for a thread that is not in a system call. A restarted call has the arguments of the first one.
func (s *Snapshot) Call() (number int64, arguments [6]uint64, ok bool) {
	const origAX = 15
	number = int64(s.Regs[origAX])
	for i, register := range [...]int{14, 13, 12, 7, 9, 8} { // di, si, dx, r10, r8, r9
		arguments[i] = s.Regs[register]
	}
	return number, arguments, number >= 0 && number < 4096
}

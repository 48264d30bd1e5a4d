//go:build linux && !amd64

package remote

// regPC is the index of the program counter in the kernel's struct user_pt_regs of arm64.
const regPC = 32

// Unwind returns the innermost frame of a stack, and ErrUnsupported: on this processor it cannot go to
// the caller.
func Unwind(_ Space, regs []uint64) ([]Frame, error) {
	if len(regs) <= regPC {
		return nil, ErrUnreadable
	}
	return []Frame{{PC: regs[regPC], Exact: true}}, ErrUnsupported
}

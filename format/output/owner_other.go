//go:build !linux

package output

// SudoOwner returns the zero Owner: gpurec records on Linux only, so nobody runs it with sudo
// elsewhere.
func SudoOwner() Owner { return Owner{} }

//go:build !linux

package output

// SudoOwner returns the zero Owner: gpurec records on Linux only.
func SudoOwner() Owner { return Owner{} }

//go:build !linux

package output

// SudoOwner returns the zero FileOwner: gpurec records on Linux only.
func SudoOwner() FileOwner { return FileOwner{} }

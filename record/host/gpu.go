//go:build linux

package host

import "github.com/gpurec/gpurec/format"

// GPU names a GPU. Lists of GPUs are in the order of NVML.
type GPU struct {
	UUID, Name string
	PCI        string // 0000:3b:00.0
	Index      int
	IsDivided  bool // MIG is on
	Parts      []format.MIGDevice
}

// Enumerated returns the UUID of the device that CUDA enumerates for a visible GPU: its own, or
// that of a MIG device. "" means none, or that it is unknown.
func (g *GPU) Enumerated() (uuid string, isMIG bool) {
	switch {
	case len(g.Parts) > 0:
		return g.Parts[0].UUID, g.Parts[0].UUID != ""
	case g.IsDivided:
		return "", false
	}
	return g.UUID, false
}

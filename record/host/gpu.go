//go:build linux

package host

import "github.com/gpurec/gpurec/format"

// GPU is what a pairing needs of a GPU; in the order of NVML.
type GPU struct {
	UUID, Name string
	PCI        string // 0000:3b:00.0
	Index      int
	IsDivided  bool // MIG is on
	Parts      []format.MIGDevice
}

// Enumerated returns what CUDA sees of a GPU that is visible; "": nothing, or not what.
func (g *GPU) Enumerated() (uuid string, isMIG bool) {
	switch {
	case len(g.Parts) > 0:
		return g.Parts[0].UUID, g.Parts[0].UUID != ""
	case g.IsDivided:
		return "", false
	}
	return g.UUID, false
}

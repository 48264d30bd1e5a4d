//go:build linux

package host

import "github.com/gpurec/gpurec/format"

// GPU identifies a GPU. Lists of GPUs are in the order of NVML.
type GPU struct {
	UUID, Name string
	PCI        string             // PCI address as domain:bus:device.function, for example 0000:3b:00.0
	Index      int                // NVML index
	IsDivided  bool               // whether Multi-Instance GPU (MIG) mode is on
	Parts      []format.MIGDevice // MIG devices of the GPU
}

// CUDADeviceUUID returns the UUID of the device that CUDA enumerates for a visible GPU: the GPU's
// UUID or, in MIG mode, that of its first MIG device. It returns "" if there is none or if it is
// unknown.
func (g *GPU) CUDADeviceUUID() (uuid string, isMIG bool) {
	switch {
	case len(g.Parts) > 0:
		return g.Parts[0].UUID, g.Parts[0].UUID != ""
	case g.IsDivided:
		return "", false
	}
	return g.UUID, false
}

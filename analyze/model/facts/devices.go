package facts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// CUDA calls identify a GPU by the ordinal that the process sees. NVML samples and Xids use the
// NVML index. The two differ with CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER, and are matched by
// UUID. The UUID of a MIG device maps to its parent GPU, because samples describe whole GPUs.

// ProcessDevice is the CUDA ordinal that a process uses for a GPU or a MIG device.
type ProcessDevice struct {
	Ordinal int32  `json:"ordinal"`
	UUID    string `json:"uuid"`
}

// GPUPart is a whole GPU, given by its NVML index, or one MIG device of that GPU.
type GPUPart struct {
	index int32
	mig   string // UUID of the MIG device; "" for the whole GPU
}

// findByUUID finds the GPU or MIG device with a UUID.
func (f *Facts) findByUUID(uuid string) (GPUPart, bool) {
	if uuid == "" {
		return GPUPart{}, false
	}
	for index, gpu := range f.Devices {
		if gpu.Fact.UUID == uuid {
			return GPUPart{index: index}, true
		}
		for _, m := range gpu.Fact.MIGDevices {
			if m.UUID == uuid {
				return GPUPart{index, uuid}, true
			}
		}
	}
	return GPUPart{}, false
}

// GPUOfOrdinal returns the GPU or MIG device behind a process's CUDA ordinal. It returns false if
// the recording does not match the ordinal to a GPU. On a machine with one GPU, every ordinal is
// that GPU.
func (f *Facts) GPUOfOrdinal(pid, ordinal int32) (GPUPart, bool) {
	for _, d := range f.Processes[pid].Devices {
		if d.Ordinal == ordinal {
			if part, ok := f.findByUUID(d.UUID); ok {
				return part, true
			}
		}
	}
	return GPUPart{index: f.OnlyDevice}, f.OnlyDevice >= 0 && ordinal >= 0
}

// NVMLIndexOf returns the NVML index of the GPU behind a process's CUDA ordinal. For a MIG device
// it is the index of the parent GPU. It returns false in the same cases as GPUOf.
func (f *Facts) NVMLIndexOf(pid, ordinal int32) (int32, bool) {
	part, ok := f.GPUOfOrdinal(pid, ordinal)
	return part.index, ok
}

// MIGDeviceOf returns the MIG device behind a process's CUDA ordinal, and the NVML index of its
// parent GPU.
func (f *Facts) MIGDeviceOf(pid, ordinal int32) (m format.MIGDevice, index int32, ok bool) {
	part, paired := f.GPUOfOrdinal(pid, ordinal)
	if !paired || part.mig == "" {
		return m, -1, false
	}
	for _, m := range f.Devices[part.index].Fact.MIGDevices {
		if m.UUID == part.mig {
			return m, part.index, true
		}
	}
	return m, -1, false
}

// OrdinalOf returns the CUDA ordinal that a process uses for the GPU with an NVML index, or for a
// MIG device of that GPU.
func (f *Facts) OrdinalOf(pid, index int32) (int32, bool) {
	for _, d := range f.Processes[pid].Devices {
		if part, ok := f.findByUUID(d.UUID); ok && part.index == index {
			return d.Ordinal, true
		}
	}
	if index >= 0 && index == f.OnlyDevice && len(f.Processes[pid].Devices) == 0 {
		return 0, true
	}
	return 0, false
}

// LearnUUID stores the UUID that the driver returned to a process for an ordinal. It overrides the
// recorder's own match. cuDeviceGetUuid_v2 returns the UUID of the MIG device, cuDeviceGetUuid that
// of the parent GPU. The recording has both with the prefix "GPU-".
func (f *Facts) LearnUUID(pid, ordinal int32, uuid string) {
	part, isWhole := f.findByUUID(uuid)
	if !isWhole {
		number, isGPU := strings.CutPrefix(uuid, "GPU-")
		if !isGPU {
			return
		}
		mig, ok := f.findByUUID("MIG-" + number)
		if !ok {
			return
		}
		part, uuid = mig, mig.mig
	}
	p := f.Processes[pid]
	at := slices.IndexFunc(p.Devices, func(d ProcessDevice) bool { return d.Ordinal == ordinal })
	divided := f.Devices[part.index].Fact.MIG
	if at >= 0 && part.mig == "" && divided != nil && *divided {
		return // the UUID does not identify the MIG device
	}
	devices := slices.Clone(p.Devices)
	if at < 0 {
		devices = append(devices, ProcessDevice{ordinal, uuid})
	} else {
		devices[at].UUID = uuid
	}
	p.Devices = devices
	f.Processes[pid] = p
}

// FormatMIGDevice names a MIG device and its parent GPU, e.g. "H100 1g.10gb (MIG of GPU 0)".
func (f *Facts) FormatMIGDevice(m format.MIGDevice, index int32) string {
	name := strings.Replace(m.Name, " MIG ", " ", 1)
	if name == "" {
		name = f.Devices[index].Name
	}
	return strings.TrimSpace(fmt.Sprintf("%s (MIG of GPU %d)", name, index))
}

// ListMIGDevices lists the MIG devices of a GPU, e.g. "1g.10gb + 2g.20gb". It returns "" for a GPU
// without MIG devices.
func (f *Facts) ListMIGDevices(index int32) string {
	var names []string
	for _, m := range f.Devices[index].Fact.MIGDevices {
		name := m.UUID
		if _, profile, ok := strings.Cut(m.Name, " MIG "); ok {
			name = profile
		}
		names = append(names, name)
	}
	return strings.Join(names, " + ")
}

package facts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// Calls name GPUs by ordinals of their process, samples and Xids by the index of NVML. The two differ where
// CUDA_VISIBLE_DEVICES or CUDA's own order says so; what pairs them is the UUID. The UUID of a MIG
// device leads to the GPU that it is a part of: samples are of whole GPUs.

// DeviceOrdinal is a GPU, or a MIG device, as a process counts.
type DeviceOrdinal struct {
	Ordinal int32  `json:"ordinal"`
	UUID    string `json:"uuid"`
}

// GPUPart is a GPU by its NVML index, or a MIG device of it.
type GPUPart struct {
	index int32
	mig   string // UUID of the MIG device; "": the whole GPU
}

// withUUID finds the GPU or MIG device with a UUID.
func (f *Facts) withUUID(uuid string) (GPUPart, bool) {
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

// GPUOf returns the GPU or MIG device of a process's ordinal; false where the recording does not
// pair them. A machine with one GPU has no other.
func (f *Facts) GPUOf(pid, ordinal int32) (GPUPart, bool) {
	for _, d := range f.Processes[pid].Devices {
		if d.Ordinal == ordinal {
			if part, ok := f.withUUID(d.UUID); ok {
				return part, true
			}
		}
	}
	return GPUPart{index: f.OnlyDevice}, f.OnlyDevice >= 0 && ordinal >= 0
}

// NVMLDevice returns the NVML index of a process's GPU, for a MIG device that of the GPU that it is
// a part of; false as in gpuOf.
func (f *Facts) NVMLDevice(pid, ordinal int32) (int32, bool) {
	part, ok := f.GPUOf(pid, ordinal)
	return part.index, ok
}

// MIGOf returns the MIG device of a process's ordinal.
func (f *Facts) MIGOf(pid, ordinal int32) (m format.MIGDevice, index int32, ok bool) {
	part, paired := f.GPUOf(pid, ordinal)
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

// OrdinalOf is the reverse: what a process calls the GPU with this NVML index, or its MIG device.
func (f *Facts) OrdinalOf(pid, index int32) (int32, bool) {
	for _, d := range f.Processes[pid].Devices {
		if part, ok := f.withUUID(d.UUID); ok && part.index == index {
			return d.Ordinal, true
		}
	}
	if index >= 0 && index == f.OnlyDevice && len(f.Processes[pid].Devices) == 0 {
		return 0, true
	}
	return 0, false
}

// LearnUUID takes the UUID that the driver returned to a process, which is surer than what the
// recorder concluded. cuDeviceGetUuid_v2 returns that of the MIG device, cuDeviceGetUuid that of
// its GPU. Both are recorded with the prefix of a GPU.
func (f *Facts) LearnUUID(pid, ordinal int32, told string) {
	part, isWhole := f.withUUID(told)
	if !isWhole {
		number, isGPU := strings.CutPrefix(told, "GPU-")
		if !isGPU {
			return
		}
		mig, ok := f.withUUID("MIG-" + number)
		if !ok {
			return
		}
		part, told = mig, mig.mig
	}
	p := f.Processes[pid]
	at := slices.IndexFunc(p.Devices, func(d DeviceOrdinal) bool { return d.Ordinal == ordinal })
	divided := f.Devices[part.index].Fact.MIG
	if at >= 0 && part.mig == "" && divided != nil && *divided {
		return // it does not say which part
	}
	devices := slices.Clone(p.Devices)
	if at < 0 {
		devices = append(devices, DeviceOrdinal{ordinal, told})
	} else {
		devices[at].UUID = told
	}
	p.Devices = devices
	f.Processes[pid] = p
}

// MIGLabel names a MIG device and the GPU that it is a part of: H100 1g.10gb (MIG of GPU 0).
func (f *Facts) MIGLabel(m format.MIGDevice, index int32) string {
	name := strings.Replace(m.Name, " MIG ", " ", 1)
	if name == "" {
		name = f.Devices[index].Name
	}
	return strings.TrimSpace(fmt.Sprintf("%s (MIG of GPU %d)", name, index))
}

// MIGNames lists the MIG devices of a GPU: 1g.10gb + 2g.20gb; "" if it is not divided.
func (f *Facts) MIGNames(index int32) string {
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

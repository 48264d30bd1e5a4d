package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// Calls name GPUs by ordinals of their process, samples and Xids by the index of NVML. The two differ where
// CUDA_VISIBLE_DEVICES or CUDA's own order says so; what pairs them is the UUID. The UUID of a MIG
// device leads to the GPU that it is a part of: samples are of whole GPUs.

// deviceOrdinal is a GPU, or a MIG device, as a process counts.
type deviceOrdinal struct {
	Ordinal int32  `json:"ordinal"`
	UUID    string `json:"uuid"`
}

// gpuPart is a GPU by its NVML index, or a MIG device of it.
type gpuPart struct {
	index int32
	mig   string // UUID of the MIG device; "": the whole GPU
}

// withUUID finds the GPU or MIG device with a UUID.
func (f *facts) withUUID(uuid string) (gpuPart, bool) {
	if uuid == "" {
		return gpuPart{}, false
	}
	for index, gpu := range f.devices {
		if gpu.fact.UUID == uuid {
			return gpuPart{index: index}, true
		}
		for _, m := range gpu.fact.MIGDevices {
			if m.UUID == uuid {
				return gpuPart{index, uuid}, true
			}
		}
	}
	return gpuPart{}, false
}

// gpuOf returns the GPU or MIG device of a process's ordinal; false where the recording does not
// pair them. A machine with one GPU has no other.
func (f *facts) gpuOf(pid, ordinal int32) (gpuPart, bool) {
	for _, d := range f.processes[pid].Devices {
		if d.Ordinal == ordinal {
			if part, ok := f.withUUID(d.UUID); ok {
				return part, true
			}
		}
	}
	return gpuPart{index: f.onlyDevice}, f.onlyDevice >= 0 && ordinal >= 0
}

// nvmlDevice returns the NVML index of a process's GPU, for a MIG device that of the GPU that it is
// a part of; false as in gpuOf.
func (f *facts) nvmlDevice(pid, ordinal int32) (int32, bool) {
	part, ok := f.gpuOf(pid, ordinal)
	return part.index, ok
}

// migOf returns the MIG device of a process's ordinal.
func (f *facts) migOf(pid, ordinal int32) (m format.MIGDevice, index int32, ok bool) {
	part, paired := f.gpuOf(pid, ordinal)
	if !paired || part.mig == "" {
		return m, -1, false
	}
	for _, m := range f.devices[part.index].fact.MIGDevices {
		if m.UUID == part.mig {
			return m, part.index, true
		}
	}
	return m, -1, false
}

// ordinalOf is the reverse: what a process calls the GPU with this NVML index, or its MIG device.
func (f *facts) ordinalOf(pid, index int32) (int32, bool) {
	for _, d := range f.processes[pid].Devices {
		if part, ok := f.withUUID(d.UUID); ok && part.index == index {
			return d.Ordinal, true
		}
	}
	if index >= 0 && index == f.onlyDevice && len(f.processes[pid].Devices) == 0 {
		return 0, true
	}
	return 0, false
}

// learnUUID takes the UUID that the driver returned to a process, which is surer than what the
// recorder concluded. cuDeviceGetUuid_v2 returns that of the MIG device, cuDeviceGetUuid that of
// its GPU. Both are recorded with the prefix of a GPU.
func (f *facts) learnUUID(pid, ordinal int32, told string) {
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
	p := f.processes[pid]
	at := slices.IndexFunc(p.Devices, func(d deviceOrdinal) bool { return d.Ordinal == ordinal })
	divided := f.devices[part.index].fact.MIG
	if at >= 0 && part.mig == "" && divided != nil && *divided {
		return // it does not say which part
	}
	devices := slices.Clone(p.Devices)
	if at < 0 {
		devices = append(devices, deviceOrdinal{ordinal, told})
	} else {
		devices[at].UUID = told
	}
	p.Devices = devices
	f.processes[pid] = p
}

// migLabel names a MIG device and the GPU that it is a part of: H100 1g.10gb (MIG of GPU 0).
func (f *facts) migLabel(m format.MIGDevice, index int32) string {
	name := strings.Replace(m.Name, " MIG ", " ", 1)
	if name == "" {
		name = f.devices[index].name
	}
	return strings.TrimSpace(fmt.Sprintf("%s (MIG of GPU %d)", name, index))
}

// ordinalLabel names a device by the ordinal that a process knows it by.
func (t *Timeline) ordinalLabel(pid, ordinal int32) string {
	if m, index, ok := t.facts.migOf(pid, ordinal); ok {
		return fmt.Sprintf("%d %s", ordinal, t.facts.migLabel(m, index))
	}
	return t.deviceLabel(ordinal)
}

// sharedMIG reports whether an ordinal is a MIG device in some process, and returns its label if
// it is the same one in every process that has the ordinal.
func (t *Timeline) sharedMIG(ordinal int32) (label string, isMIG bool) {
	isSame := true
	for _, pid := range slices.Sorted(maps.Keys(t.facts.processes)) {
		if len(t.facts.processes[pid].Devices) == 0 {
			continue
		}
		_, _, ok := t.facts.migOf(pid, ordinal)
		own := t.ordinalLabel(pid, ordinal)
		isSame = isSame && (label == "" || own == label)
		label, isMIG = own, isMIG || ok
	}
	if !isSame {
		label = ""
	}
	return label, isMIG
}

// sharedLabel names a device by an ordinal, for all processes together.
func (t *Timeline) sharedLabel(ordinal int32) string {
	if label, isMIG := t.sharedMIG(ordinal); isMIG && label != "" {
		return label
	}
	return t.deviceLabel(ordinal)
}

// migNames lists the MIG devices of a GPU: 1g.10gb + 2g.20gb; "" if it is not divided.
func (f *facts) migNames(index int32) string {
	var names []string
	for _, m := range f.devices[index].fact.MIGDevices {
		name := m.UUID
		if _, profile, ok := strings.Cut(m.Name, " MIG "); ok {
			name = profile
		}
		names = append(names, name)
	}
	return strings.Join(names, " + ")
}

package analyze

// Calls name GPUs by ordinals of their process, samples and Xids by the index of NVML. The two differ where
// CUDA_VISIBLE_DEVICES or CUDA's own order says so; what pairs them is the UUID.

// deviceOrdinal is a GPU as a process counts.
type deviceOrdinal struct {
	Ordinal int32  `json:"ordinal"`
	UUID    string `json:"uuid"`
}

// nvmlDevice returns the NVML index of a process's GPU; false where the recording does not pair them. A machine with one
// GPU has no other.
func (f *facts) nvmlDevice(pid, ordinal int32) (int32, bool) {
	for _, d := range f.processes[pid].Devices {
		if d.Ordinal != ordinal || d.UUID == "" {
			continue
		}
		for index, gpu := range f.devices {
			if gpu.fact.UUID == d.UUID {
				return index, true
			}
		}
	}
	return f.onlyDevice, f.onlyDevice >= 0 && ordinal >= 0
}

// ordinalOf is the reverse: what a process calls the GPU with this NVML index.
func (f *facts) ordinalOf(pid, index int32) (int32, bool) {
	for _, d := range f.processes[pid].Devices {
		if uuid := f.devices[index].fact.UUID; uuid != "" && uuid == d.UUID {
			return d.Ordinal, true
		}
	}
	if index >= 0 && index == f.onlyDevice && len(f.processes[pid].Devices) == 0 {
		return 0, true
	}
	return 0, false
}

//go:build linux

package process

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/host"
)

// deviceFact maps a CUDA device ordinal of a process to the UUID of a GPU or MIG device.
type deviceFact struct {
	Ordinal int    `json:"ordinal"`
	UUID    string `json:"uuid"`
	// How is the evidence for the mapping: "only GPU", "CUDA_VISIBLE_DEVICES", "order" (CUDA and
	// NVML count equal GPUs in the order of the PCI bus), or "first MIG device".
	How string `json:"how"`
}

const (
	evidenceOnlyGPU        = "only GPU"
	evidenceVisibleDevices = "CUDA_VISIBLE_DEVICES"
	evidenceEqualOrder     = "order"
	evidenceFirstMIG       = "first MIG device"
)

// mapDeviceOrdinals maps a process's device ordinals to GPUs. It uses the process's environment, in
// the format of /proc/PID/environ, and the GPUs of the machine. It leaves out uncertain ordinals.
// NVML counts GPUs by PCI bus. CUDA counts the fastest GPU first, unless CUDA_DEVICE_ORDER is
// PCI_BUS_ID or all GPUs are of one kind.
//
// A process with a MIG device sees only that device: the first one of the first GPU in MIG mode. No
// process sees a GPU in MIG mode that has no MIG devices.
func mapDeviceOrdinals(environ string, gpus []host.GPU) []deviceFact {
	env := parseDeviceEnvironment(environ)
	gpus = env.filterContainerGPUs(gpus)
	sameOrder := env.order == "PCI_BUS_ID" || haveSameName(gpus)
	if !env.restricted {
		return mapUnrestrictedOrdinals(gpus, sameOrder)
	}
	var facts []deviceFact
	isSure := true // CUDA ignores devices after an unknown one
	for ordinal, name := range env.visible {
		uuid, isMIG := "", false
		if n, err := strconv.Atoi(name); err == nil {
			if n < 0 || n >= len(gpus) {
				break // CUDA ignores an invalid number and all later ones
			}
			if sameOrder || len(gpus) == 1 {
				uuid, isMIG = gpus[n].CUDADeviceUUID()
			}
		} else {
			uuid, isMIG = findDeviceUUID(gpus, name)
		}
		if isMIG {
			if !isSure {
				return nil
			}
			return []deviceFact{{Ordinal: 0, UUID: uuid, How: evidenceVisibleDevices}}
		}
		if isSure = isSure && uuid != ""; uuid != "" {
			facts = append(facts, deviceFact{Ordinal: ordinal, UUID: uuid, How: evidenceVisibleDevices})
		}
	}
	return facts
}

// mapUnrestrictedOrdinals maps the ordinals of a process without CUDA_VISIBLE_DEVICES, which sees
// all GPUs.
func mapUnrestrictedOrdinals(gpus []host.GPU, sameOrder bool) []deviceFact {
	divided := func(g host.GPU) bool { return len(g.Parts) > 0 }
	if first := slices.IndexFunc(gpus, divided); first >= 0 {
		isFirst := sameOrder || !slices.ContainsFunc(gpus[first+1:], divided)
		if uuid := gpus[first].Parts[0].UUID; uuid != "" && isFirst {
			return []deviceFact{{Ordinal: 0, UUID: uuid, How: evidenceFirstMIG}}
		}
		return nil
	}
	whole := slices.DeleteFunc(slices.Clone(gpus), func(g host.GPU) bool { return g.IsDivided })
	if len(whole) == 1 {
		return []deviceFact{{Ordinal: 0, UUID: whole[0].UUID, How: evidenceOnlyGPU}}
	}
	if !sameOrder {
		return nil
	}
	facts := make([]deviceFact, 0, len(whole))
	for i, g := range whole {
		facts = append(facts, deviceFact{Ordinal: i, UUID: g.UUID, How: evidenceEqualOrder})
	}
	return facts
}

// deviceEnvironment has the environment variables of a process that select devices.
type deviceEnvironment struct {
	visible    []string // values of CUDA_VISIBLE_DEVICES
	restricted bool     // whether CUDA_VISIBLE_DEVICES is set
	container  []string // values of NVIDIA_VISIBLE_DEVICES: the devices of the container
	order      string   // value of CUDA_DEVICE_ORDER
}

// parseDeviceEnvironment parses an environment in the format of /proc/PID/environ.
func parseDeviceEnvironment(environ string) (env deviceEnvironment) {
	for kv := range strings.SplitSeq(environ, "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "CUDA_VISIBLE_DEVICES":
			env.restricted, env.visible = true, splitDeviceList(value)
		case "NVIDIA_VISIBLE_DEVICES":
			env.container = splitDeviceList(value)
		case "CUDA_DEVICE_ORDER":
			env.order = value
		}
	}
	return env
}

// splitDeviceList splits a comma-separated list of devices.
func splitDeviceList(list string) (names []string) {
	for d := range strings.SplitSeq(list, ",") {
		if d = strings.TrimSpace(d); d != "" {
			names = append(names, d)
		}
	}
	return names
}

// filterContainerGPUs returns the GPUs that the process's container can see. If the container has
// MIG devices, these are the GPUs with those MIG devices only; otherwise all GPUs.
func (e *deviceEnvironment) filterContainerGPUs(gpus []host.GPU) []host.GPU {
	given := make(map[string]bool)
	for _, name := range e.container {
		if uuid, isMIG := findDeviceUUID(gpus, name); isMIG {
			given[uuid] = true
		}
	}
	if len(given) == 0 {
		return gpus
	}
	var left []host.GPU
	for _, g := range gpus {
		isHidden := func(m format.MIGDevice) bool { return !given[m.UUID] }
		g.Parts = slices.DeleteFunc(slices.Clone(g.Parts), isHidden)
		if len(g.Parts) > 0 {
			left = append(left, g)
		}
	}
	return left
}

// haveSameName reports whether all GPUs have the same name.
func haveSameName(gpus []host.GPU) bool {
	for _, g := range gpus {
		if g.Name != gpus[0].Name {
			return false
		}
	}
	return true
}

// findDeviceUUID returns the UUID of the device with a name as in CUDA_VISIBLE_DEVICES: a UUID, a
// unique prefix of one, or MIG-GPU-UUID/GPU INSTANCE/COMPUTE INSTANCE. It returns "" for no match
// and for several matches.
func findDeviceUUID(gpus []host.GPU, name string) (uuid string, isMIG bool) {
	found := 0
	for _, g := range gpus {
		if g.UUID != "" && strings.HasPrefix(g.UUID, name) {
			found++
			uuid, isMIG = g.CUDADeviceUUID()
		}
		for _, m := range g.Parts {
			older := fmt.Sprintf("MIG-%s/%d/%d", g.UUID, m.GPUInstance, m.ComputeInstance)
			if m.UUID != "" && (strings.HasPrefix(m.UUID, name) || older == name) {
				found++
				uuid, isMIG = m.UUID, true
			}
		}
	}
	if found != 1 {
		return "", false
	}
	return uuid, isMIG
}

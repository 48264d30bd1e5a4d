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

// deviceFact pairs a device ordinal of a process with a GPU, or with a MIG device.
type deviceFact struct {
	Ordinal int    `json:"ordinal"`
	UUID    string `json:"uuid"`
	// How says where the pairing is from: "only GPU", "CUDA_VISIBLE_DEVICES", "order" (CUDA and
	// NVML count equal GPUs alike: by PCI bus), or "first MIG device".
	How string `json:"how"`
}

const (
	pairedOnly    = "only GPU"
	pairedVisible = "CUDA_VISIBLE_DEVICES"
	pairedOrder   = "order"
	pairedMIG     = "first MIG device"
)

// devicesOf pairs a process's ordinals with GPUs by its environment, as /proc/PID/environ has it,
// and by the GPUs of the machine. It leaves out what is not sure. NVML counts GPUs by PCI bus. CUDA
// puts the fastest first unless CUDA_DEVICE_ORDER says PCI_BUS_ID or all are of one kind.
//
// A process sees at most one MIG device, and no GPU as well: its first one, of the first GPU that
// is divided. A divided GPU without MIG devices is not seen at all.
func devicesOf(environ string, gpus []host.GPU) []deviceFact {
	env := newDeviceEnvironment(environ)
	gpus = env.inContainer(gpus)
	sameOrder := env.order == "PCI_BUS_ID" || sameKind(gpus)
	if !env.restricted {
		return unrestricted(gpus, sameOrder)
	}
	var facts []deviceFact
	isSure := true // CUDA ends at what it does not know
	for ordinal, name := range env.visible {
		uuid, isMIG := "", false
		if n, err := strconv.Atoi(name); err == nil {
			if n < 0 || n >= len(gpus) {
				break // CUDA ignores it and all that follow
			}
			if sameOrder || len(gpus) == 1 {
				uuid, isMIG = gpus[n].Enumerated()
			}
		} else {
			uuid, isMIG = named(gpus, name)
		}
		if isMIG {
			if !isSure {
				return nil
			}
			return []deviceFact{{Ordinal: 0, UUID: uuid, How: pairedVisible}}
		}
		if isSure = isSure && uuid != ""; uuid != "" {
			facts = append(facts, deviceFact{Ordinal: ordinal, UUID: uuid, How: pairedVisible})
		}
	}
	return facts
}

// unrestricted pairs the ordinals of a process that sees all GPUs.
func unrestricted(gpus []host.GPU, sameOrder bool) []deviceFact {
	divided := func(g host.GPU) bool { return len(g.Parts) > 0 }
	if first := slices.IndexFunc(gpus, divided); first >= 0 {
		isFirst := sameOrder || !slices.ContainsFunc(gpus[first+1:], divided)
		if uuid := gpus[first].Parts[0].UUID; uuid != "" && isFirst {
			return []deviceFact{{Ordinal: 0, UUID: uuid, How: pairedMIG}}
		}
		return nil
	}
	whole := slices.DeleteFunc(slices.Clone(gpus), func(g host.GPU) bool { return g.IsDivided })
	if len(whole) == 1 {
		return []deviceFact{{Ordinal: 0, UUID: whole[0].UUID, How: pairedOnly}}
	}
	if !sameOrder {
		return nil
	}
	facts := make([]deviceFact, 0, len(whole))
	for i, g := range whole {
		facts = append(facts, deviceFact{Ordinal: i, UUID: g.UUID, How: pairedOrder})
	}
	return facts
}

// deviceEnvironment is what a process's environment says of devices.
type deviceEnvironment struct {
	visible    []string // of CUDA_VISIBLE_DEVICES
	restricted bool     // it is set
	container  []string // of NVIDIA_VISIBLE_DEVICES, by which a container is given devices
	order      string
}

func newDeviceEnvironment(environ string) (env deviceEnvironment) {
	for kv := range strings.SplitSeq(environ, "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "CUDA_VISIBLE_DEVICES":
			env.restricted, env.visible = true, splitDevices(value)
		case "NVIDIA_VISIBLE_DEVICES":
			env.container = splitDevices(value)
		case "CUDA_DEVICE_ORDER":
			env.order = value
		}
	}
	return env
}

func splitDevices(list string) (names []string) {
	for d := range strings.SplitSeq(list, ",") {
		if d = strings.TrimSpace(d); d != "" {
			names = append(names, d)
		}
	}
	return names
}

// ps.inContainer returns the GPUs that hold the MIG devices which a container was given by name, and
// of each only these; without such names all GPUs.
func (e *deviceEnvironment) inContainer(gpus []host.GPU) []host.GPU {
	given := make(map[string]bool)
	for _, name := range e.container {
		if uuid, isMIG := named(gpus, name); isMIG {
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

func sameKind(gpus []host.GPU) bool {
	for _, g := range gpus {
		if g.Name != gpus[0].Name {
			return false
		}
	}
	return true
}

// named returns the UUID of the device that CUDA_VISIBLE_DEVICES names: by UUID, by the beginning
// of only one, or, of a MIG device, as MIG-GPU-UUID/GPU INSTANCE/COMPUTE INSTANCE. "": none, or
// several.
func named(gpus []host.GPU, name string) (uuid string, isMIG bool) {
	found := 0
	for _, g := range gpus {
		if g.UUID != "" && strings.HasPrefix(g.UUID, name) {
			found++
			uuid, isMIG = g.Enumerated()
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

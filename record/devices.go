//go:build linux

package record

import (
	"strconv"
	"strings"
)

// deviceFact pairs a device ordinal of a process with a GPU.
type deviceFact struct {
	Ordinal int    `json:"ordinal"`
	UUID    string `json:"uuid"`
	// How says where the pairing is from: "only GPU", "CUDA_VISIBLE_DEVICES", or "order"
	// (CUDA and NVML count equal GPUs alike: by PCI bus).
	How string `json:"how"`
}

// devicesOf returns which GPUs a process's ordinals stand for, as far as its
// environment and the GPUs of the machine tell; what is not sure is left out.
// NVML counts GPUs by PCI bus, CUDA puts the fastest first unless CUDA_DEVICE_ORDER
// says PCI_BUS_ID or all are of one kind.
func devicesOf(environ string, gpus []gpuName) []deviceFact {
	visible, order, restricted := deviceEnvironment(environ)
	sameOrder := order == "PCI_BUS_ID" || sameKind(gpus)
	if !restricted {
		if len(gpus) == 1 {
			return []deviceFact{{Ordinal: 0, UUID: gpus[0].uuid, How: "only GPU"}}
		}
		if !sameOrder {
			return nil
		}
		facts := make([]deviceFact, 0, len(gpus))
		for i, g := range gpus {
			facts = append(facts, deviceFact{Ordinal: i, UUID: g.uuid, How: "order"})
		}
		return facts
	}
	var facts []deviceFact
	for ordinal, name := range visible {
		uuid := ""
		if n, err := strconv.Atoi(name); err == nil {
			if n < 0 || n >= len(gpus) {
				break // CUDA ignores it and all that follow
			}
			if sameOrder || len(gpus) == 1 {
				uuid = gpus[n].uuid
			}
		} else {
			uuid = uuidBeginning(gpus, name)
		}
		if uuid != "" {
			facts = append(facts, deviceFact{Ordinal: ordinal, UUID: uuid, How: "CUDA_VISIBLE_DEVICES"})
		}
	}
	return facts
}

// deviceEnvironment returns what an environment says of devices.
func deviceEnvironment(environ string) (visible []string, order string, restricted bool) {
	for kv := range strings.SplitSeq(environ, "\x00") {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case "CUDA_VISIBLE_DEVICES":
			restricted = true
			for d := range strings.SplitSeq(value, ",") {
				if d = strings.TrimSpace(d); d != "" {
					visible = append(visible, d)
				}
			}
		case "CUDA_DEVICE_ORDER":
			order = value
		}
	}
	return visible, order, restricted
}

func sameKind(gpus []gpuName) bool {
	for _, g := range gpus {
		if g.name != gpus[0].name {
			return false
		}
	}
	return true
}

// uuidBeginning returns the one UUID that begins so, as CUDA_VISIBLE_DEVICES allows.
func uuidBeginning(gpus []gpuName, prefix string) string {
	found := ""
	for _, g := range gpus {
		if strings.HasPrefix(g.uuid, prefix) {
			if found != "" {
				return ""
			}
			found = g.uuid
		}
	}
	return found
}

// gpuName is what a pairing needs of a GPU; in the order of NVML.
type gpuName struct {
	uuid, name string
	pci        string // 0000:3b:00.0
	index      int
}

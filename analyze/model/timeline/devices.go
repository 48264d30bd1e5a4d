package timeline

import (
	"fmt"
	"maps"
	"slices"
)

// OrdinalDeviceLabel returns the label of the device with a process's CUDA ordinal.
func (t *Timeline) OrdinalDeviceLabel(pid, ordinal int32) string {
	if m, index, ok := t.Facts.MIGDeviceOf(pid, ordinal); ok {
		return fmt.Sprintf("%d %s", ordinal, t.Facts.FormatMIGDevice(m, index))
	}
	return t.DeviceLabel(ordinal)
}

// sharedMIGLabel reports whether an ordinal is a MIG device in any process. It returns the label of
// the device if all processes with that ordinal agree on it.
func (t *Timeline) sharedMIGLabel(ordinal int32) (label string, isMIG bool) {
	isSame := true
	for _, pid := range slices.Sorted(maps.Keys(t.Facts.Processes)) {
		if len(t.Facts.Processes[pid].Devices) == 0 {
			continue
		}
		_, _, ok := t.Facts.MIGDeviceOf(pid, ordinal)
		own := t.OrdinalDeviceLabel(pid, ordinal)
		isSame = isSame && (label == "" || own == label)
		label, isMIG = own, isMIG || ok
	}
	if !isSame {
		label = ""
	}
	return label, isMIG
}

// SharedDeviceLabel returns the label of a device ordinal for all processes together.
func (t *Timeline) SharedDeviceLabel(ordinal int32) string {
	if label, isMIG := t.sharedMIGLabel(ordinal); isMIG && label != "" {
		return label
	}
	return t.DeviceLabel(ordinal)
}

package timeline

import (
	"fmt"
	"maps"
	"slices"
)

// OrdinalLabel returns the label of the device with a process's CUDA ordinal.
func (t *Timeline) OrdinalLabel(pid, ordinal int32) string {
	if m, index, ok := t.Facts.MIGOf(pid, ordinal); ok {
		return fmt.Sprintf("%d %s", ordinal, t.Facts.MIGLabel(m, index))
	}
	return t.DeviceLabel(ordinal)
}

// sharedMIG reports whether an ordinal is a MIG device in any process. It returns the label of the
// device if all processes with that ordinal agree on it.
func (t *Timeline) sharedMIG(ordinal int32) (label string, isMIG bool) {
	isSame := true
	for _, pid := range slices.Sorted(maps.Keys(t.Facts.Processes)) {
		if len(t.Facts.Processes[pid].Devices) == 0 {
			continue
		}
		_, _, ok := t.Facts.MIGOf(pid, ordinal)
		own := t.OrdinalLabel(pid, ordinal)
		isSame = isSame && (label == "" || own == label)
		label, isMIG = own, isMIG || ok
	}
	if !isSame {
		label = ""
	}
	return label, isMIG
}

// SharedLabel returns the label of a device ordinal for all processes together.
func (t *Timeline) SharedLabel(ordinal int32) string {
	if label, isMIG := t.sharedMIG(ordinal); isMIG && label != "" {
		return label
	}
	return t.DeviceLabel(ordinal)
}

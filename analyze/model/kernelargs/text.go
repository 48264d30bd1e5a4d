package kernelargs

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// Limits of FormatText.
const (
	maxTextValues = 32
	maxTextWords  = 8 // words of a structure
)

// FormatText returns the values of a launch as text: numbers of 1 to 4 bytes in decimal, words of 8 bytes in
// hexadecimal, and the words of structures in braces.
func FormatText(a *format.KernelArgs) string {
	list := make([]string, 0, len(a.Values))
	for i := range a.Values {
		if i == maxTextValues {
			list = append(list, "…")
			break
		}
		list = append(list, formatValue(&a.Values[i]))
	}
	text := strings.Join(list, ", ")
	if a.Layout == format.ArgumentsUnknown {
		text += " (layout unknown)"
	}
	if a.Missing != "" {
		text += " (" + a.Missing + ")"
	}
	return strings.TrimSpace(text)
}

// formatValue returns one value as text.
func formatValue(v *format.KernelArgument) string {
	raw := v.Bytes()
	switch {
	case v.IsCut:
	case len(raw) == 1:
		return fmt.Sprint(raw[0])
	case len(raw) == 2:
		return fmt.Sprint(int16(binary.LittleEndian.Uint16(raw)))
	case len(raw) == 4:
		return fmt.Sprint(int32(binary.LittleEndian.Uint32(raw)))
	case len(raw) == 8:
		return fmt.Sprintf("%#x", binary.LittleEndian.Uint64(raw))
	}
	var words []string
	for ; len(raw) >= 8 && len(words) < maxTextWords; raw = raw[8:] {
		words = append(words, fmt.Sprintf("%#x", binary.LittleEndian.Uint64(raw)))
	}
	switch {
	case len(raw) >= 8 || v.IsCut:
		words = append(words, "…")
	case len(raw) > 0:
		words = append(words, fmt.Sprintf("%x", raw))
	}
	return "{" + strings.Join(words, ", ") + "}"
}

//go:build linux

package cpython

import "encoding/binary"

// text reads the string object to which the word at an address points. It cuts long strings.
func (i *Interpreter) text(pointer uint64) (string, error) {
	object, err := i.word(pointer)
	if err != nil {
		return "", err
	}
	var head [24]byte // length, hash, state
	if err := i.memory.Read(object+16, head[:]); err != nil {
		return "", err
	}
	length := binary.LittleEndian.Uint64(head[:])
	state := binary.LittleEndian.Uint32(head[16:])
	kind, isCompact, isASCII := int(state>>2&7), state>>5&1 == 1, state>>6&1 == 1
	if !isCompact || kind != 1 && kind != 2 && kind != 4 {
		return "", ErrFrame
	}
	length = min(length, maxTextBytes)
	data := object + i.layout.asciiBytes
	if !isASCII {
		// PyCompactUnicodeObject adds the length and the address of the UTF-8 form, and the length
		// of the wchar_t form before 3.12.
		data += 16
		if i.layout.asciiBytes == 48 {
			data += 8
		}
	}
	raw := make([]byte, int(length)*kind)
	if err := i.memory.Read(data, raw); err != nil {
		return "", err
	}
	return decode(raw, kind), nil
}

// decode returns the text of characters with 1, 2 or 4 bytes each.
func decode(raw []byte, kind int) string {
	runes := make([]rune, 0, len(raw)/kind)
	for i := 0; i+kind <= len(raw); i += kind {
		switch kind {
		case 1:
			runes = append(runes, rune(raw[i]))
		case 2:
			runes = append(runes, rune(binary.LittleEndian.Uint16(raw[i:])))
		case 4:
			runes = append(runes, rune(binary.LittleEndian.Uint32(raw[i:])))
		}
	}
	return string(runes)
}

// Codes of entries in a location table.
const (
	locationOneLine   = 10 // to 12: the line delta, and two columns
	locationNoColumns = 13
	locationLong      = 14
	locationNone      = 15
)

// findLine returns the line of an instruction from the location table of a code object (since 3.11).
// It returns 0 if the table has none.
func findLine(table []byte, first int, instruction int64) int {
	line, i := first, 0
	varint := func() (v int) {
		for shift := 0; i < len(table) && shift < 32; shift += 6 {
			b := table[i]
			i++
			v |= int(b&63) << shift
			if b&64 == 0 {
				break
			}
		}
		return v
	}
	signed := func() int {
		v := varint()
		if v&1 != 0 {
			return -(v >> 1)
		}
		return v >> 1
	}
	for end := int64(0); i < len(table); {
		head := table[i]
		i++
		code := int(head >> 3 & 15)
		switch {
		case code < locationOneLine:
			i++
		case code < locationNoColumns:
			line += code - locationOneLine
			i += 2
		case code == locationNoColumns:
			line += signed()
		case code == locationLong:
			line += signed()
			varint()
			varint()
			varint()
		}
		if end += int64(head&7) + 1; instruction < end {
			if code == locationNone {
				return 0
			}
			return line
		}
	}
	return 0
}

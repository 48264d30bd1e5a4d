//go:build linux

package hold

import (
	"debug/elf"
	"encoding/binary"

	"golang.org/x/arch/x86/x86asm"
)

// callInstructions returns the addresses of the instructions in code that call or jump to a function
// directly. code begins at address base. It returns nil for a CPU architecture that it does not know,
// or if it cannot tell where instructions begin.
func callInstructions(machine elf.Machine, code []byte, base, function uint64) []uint64 {
	switch machine {
	case elf.EM_X86_64:
		return callInstructionsX86(code, base, function)
	case elf.EM_AARCH64:
		return callInstructionsARM64(code, base, function)
	}
	return nil
}

// callInstructionsX86 decodes all instructions from the start of the code. It compares the result with a
// search for the bytes of such calls: a difference means that data is between the instructions.
func callInstructionsX86(code []byte, base, function uint64) (sites []uint64) {
	const callOrJump, bytesOfCall = 0xe8 &^ 1, 5 // e8 is a call, e9 a jump, with a 32-bit distance
	leadsTo := func(at int) bool {
		distance := int64(int32(binary.LittleEndian.Uint32(code[at+1:])))
		return code[at]&^1 == callOrJump && base+uint64(at)+bytesOfCall+uint64(distance) == function
	}
	matches := 0
	for at := range max(0, len(code)-bytesOfCall+1) {
		if leadsTo(at) {
			matches++
		}
	}
	for at := 0; at+bytesOfCall <= len(code); {
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			at++
			continue
		}
		if leadsTo(at) {
			sites = append(sites, base+uint64(at))
		}
		at += in.Len
	}
	if len(sites) != matches {
		return nil
	}
	return sites
}

func callInstructionsARM64(code []byte, base, function uint64) (sites []uint64) {
	for at := 0; at+4 <= len(code); at += 4 {
		word := binary.LittleEndian.Uint32(code[at:])
		distance := int64(int32(word<<6)) >> 6 * 4
		isBranch := word&0x7c000000 == 0x14000000 // B and BL
		if isBranch && base+uint64(at)+uint64(distance) == function {
			sites = append(sites, base+uint64(at))
		}
	}
	return sites
}

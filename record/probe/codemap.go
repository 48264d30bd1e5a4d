//go:build linux

package probe

import (
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/symbolize"
)

// MapCode gives the BPF programs the address ranges of a process's code, from its mappings.
func (p *Probes) MapCode(pid int, mappings []symbolize.Mapping) {
	// On an error, native paths are less exact. The stack inference statistics show that.
	_ = p.Objects.CodeMaps.Put(uint32(pid), makeCodeMap(mappings))
}

// makeCodeMap makes a bitmap of the address ranges that hold code of a process. The BPF programs
// use it to recognize return addresses.
func makeCodeMap(mappings []symbolize.Mapping) *bpf.CudaCodeMap {
	const unitBits = 21
	m := new(bpf.CudaCodeMap)
	units := uint64(len(m.Units) * 64)
	// The bitmap ends at the highest library: the others are mapped below.
	var top uint64
	for _, mapping := range mappings {
		if mapping.Executable() && mapping.Inode != 0 && mapping.End > top {
			top = mapping.End
		}
	}
	last := top >> unitBits
	first := last - min(last, units-1)
	m.Base = first << unitBits
	for _, mapping := range mappings {
		if !mapping.Executable() {
			continue
		}
		if mapping.End <= m.Base && mapping.Inode != 0 {
			if m.ProgramStart == 0 {
				m.ProgramStart = mapping.Start
			}
			m.ProgramEnd = mapping.End
		}
		from, to := max(mapping.Start>>unitBits, first), min((mapping.End-1)>>unitBits, first+units-1)
		for unit := from; unit <= to; unit++ {
			m.Units[(unit-first)/64] |= 1 << ((unit - first) % 64)
		}
	}
	return m
}

//go:build linux

package communicator

// Layout has the offsets of members of ncclComm in bytes, as compiled from NCCL's sources for x86-64 and CUDA 12.6. The
// offsets of 2.28.9 are also those of PyTorch's wheel.
type Layout struct {
	// Version is the oldest version of NCCL with this layout.
	Version string
	// Hash is the offset of commHash, 8 bytes. The rank and the number of ranks follow it, 4 bytes each.
	Hash uint64
	// Counters is the offset of Functions counters of 8 bytes: seqNumber. 0: the version does not always count.
	Counters uint64
	// EndMagic is the offset of the last member, which has the value magic.
	EndMagic uint64
}

// magic is the value of the first and the last member of ncclComm since NCCL 2.21: NCCL_MAGIC in comm.h.
const magic = 0x0280028002800280

// Functions are the collectives that NCCL counts, in the order of its counters.
var Functions = [...]string{"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"}

// layouts are the known layouts. The offset of the last member differs between all of them.
var layouts = []Layout{
	{"2.21.5", 13528, 0, 16280},
	{"2.22.3", 213576, 0, 219512},
	{"2.23.4", 246944, 0, 253144},
	{"2.24.3", 246944, 0, 252616},
	{"2.25.1", 492704, 0, 501064},
	{"2.26.2", 492720, 501008, 506744},
	{"2.27.3", 1066160, 1074512, 1080312},
	{"2.28.3", 1066176, 1075720, 1081808},
	{"2.28.9", 1066184, 1075728, 1082960},
	{"2.29.3", 1066704, 1076856, 1084800},
	{"2.29.7", 1181392, 1191544, 1199584},
	{"2.30.7", 1181416, 1191576, 1199736},
}

// FindLayout returns the layout of the communicator at an address of a process. ok is false if its version is not
// known, or the memory is no communicator.
func FindLayout(pid int, at uint64) (l *Layout, ok bool) {
	return findLayout(&processMemory{pid: pid}, at, nil)
}

// findLayout is FindLayout. It tries likely first, unless it is nil.
func findLayout(m memory, at uint64, likely *Layout) (l *Layout, ok bool) {
	var word [1]uint64
	if !readWords(m, at, word[:]) || word[0] != magic {
		return nil, false
	}
	if likely != nil && readWords(m, at+likely.EndMagic, word[:]) && word[0] == magic {
		return likely, true
	}
	for i := range layouts {
		if readWords(m, at+layouts[i].EndMagic, word[:]) && word[0] == magic {
			return &layouts[i], true
		}
	}
	return nil, false
}

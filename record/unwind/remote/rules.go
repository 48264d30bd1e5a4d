//go:build linux

package remote

import (
	"errors"
	"runtime"
	"sort"
	"unsafe"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	"go.opentelemetry.io/ebpf-profiler/nativeunwind/elfunwindinfo"
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"
)

// tableReader is the provider of stack deltas of the patched module.
type tableReader interface {
	ReadTable(reference *pfelf.Reference, store Store) (
		firstPage uint64, pages []uint16, deltas []uint32, infos []byte, release func(), err error)
}

// readRules reads the rules of an ELF file.
func readRules(reference *pfelf.Reference, store Store) (rules, error) {
	provider, isPatched := elfunwindinfo.NewStackDeltaProvider().(tableReader)
	if !isPatched {
		intervals, err := elfunwindinfo.ExtractELF(reference)
		return (*intervalRules)(intervals), err
	}
	firstPage, pages, deltas, infos, release, err := provider.ReadTable(reference, store)
	if err != nil {
		return nil, err
	}
	return newPackedRules(firstPage, pages, deltas, infos, release)
}

// intervalRules are the rules in a build with the unpatched module.
type intervalRules sdtypes.IntervalData

func (r *intervalRules) find(vaddr uint64) (rule sdtypes.UnwindInfo, ok bool) {
	block := (*sdtypes.IntervalData)(r).Find(vaddr)
	if block == nil {
		return sdtypes.UnwindInfo{}, false
	}
	i := sort.Search(len(block.Deltas), func(i int) bool { return uint64(block.Deltas[i].Offset) > vaddr-block.Start })
	if i == 0 {
		return sdtypes.UnwindInfo{}, false
	}
	return block.Deltas[i-1].Info, true
}

// packedRules are rules in the form of nativeunwind.Table, in 4 bytes each. They may be in the memory of a store.
type packedRules struct {
	firstPage uint64   // address of the first page
	starts    []uint32 // index of the first delta of each page, and the number of deltas
	deltas    []uint32 // low half: address in the page; high half: index of infos, or a command
	infos     []sdtypes.UnwindInfo
}

// newPackedRules returns rules, and calls release when they are no longer used.
func newPackedRules(firstPage uint64, pages []uint16, deltas []uint32, infos []byte, release func()) (rules, error) {
	r := &packedRules{firstPage: firstPage, starts: make([]uint32, len(pages)+1), deltas: deltas}
	for i, n := range pages {
		r.starts[i+1] = r.starts[i] + uint32(n)
	}
	if r.starts[len(pages)] != uint32(len(deltas)) {
		return nil, errors.New("pages of the unwind table do not match its size")
	}
	const infoBytes = int(unsafe.Sizeof(sdtypes.UnwindInfo{}))
	r.infos = make([]sdtypes.UnwindInfo, len(infos)/infoBytes)
	if len(r.infos) > 0 {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&r.infos[0])), len(r.infos)*infoBytes), infos)
	}
	if release != nil {
		runtime.AddCleanup(r, func(release func()) { release() }, release)
	}
	return r, nil
}

func (r *packedRules) find(vaddr uint64) (rule sdtypes.UnwindInfo, ok bool) {
	defer runtime.KeepAlive(r) // deltas may be in memory that is released after r
	page := (vaddr - r.firstPage) >> support.StackDeltaPageBits
	if vaddr < r.firstPage || page >= uint64(len(r.starts)-1) {
		return sdtypes.UnwindInfo{}, false
	}
	low := uint32(vaddr & support.StackDeltaPageMask)
	first, end := int(r.starts[page]), int(r.starts[page+1])
	i := first + sort.Search(end-first, func(i int) bool { return r.deltas[first+i]&0xffff > low }) - 1
	if i < 0 {
		return sdtypes.UnwindInfo{}, false
	}
	number := r.deltas[i] >> 16
	switch {
	case number == support.DeltaCommandFlag|uint32(support.UnwindCommandInvalid):
		return sdtypes.UnwindInfo{}, false
	case number&support.DeltaCommandFlag != 0:
		rule.Flags, rule.Param = support.UnwindFlagCommand, int32(number&^support.DeltaCommandFlag)
		return rule, true
	case int(number) >= len(r.infos):
		return sdtypes.UnwindInfo{}, false
	}
	rule = r.infos[number]
	if merged := uint64(rule.MergeOpcode &^ support.MergeOpcodeNegative); merged != 0 && vaddr-r.address(i) >= merged {
		// The rule of the next delta, which differs by a push or a pop.
		rule.Param += 8
		if rule.MergeOpcode&support.MergeOpcodeNegative != 0 {
			rule.Param -= 16
		}
	}
	rule.MergeOpcode = 0
	return rule, true
}

// address returns the ELF virtual address of a delta.
func (r *packedRules) address(i int) uint64 {
	page := sort.Search(len(r.starts), func(p int) bool { return int(r.starts[p]) > i }) - 1
	return r.firstPage + uint64(page)<<support.StackDeltaPageBits + uint64(r.deltas[i]&0xffff)
}

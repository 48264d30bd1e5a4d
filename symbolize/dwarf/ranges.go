package dwarf

import (
	"errors"

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// errDamagedRanges is the error for a range list with an unknown kind of entry.
var errDamagedRanges = errors.New("damaged list of address ranges")

// eachDIERange calls use for each address range of a DIE.
func (d *Data) eachDIERange(u *debugUnit, e *debugEntry, use func(addressRange)) error {
	if e.low.isPresent() && e.high.isPresent() {
		low, err := d.resolveAddress(u, e.low)
		if err != nil {
			return err
		}
		high := low + e.high.n
		if !e.high.isConstant() {
			if high, err = d.resolveAddress(u, e.high); err != nil {
				return err
			}
		}
		use(addressRange{low, high})
	}
	switch {
	case !e.ranges.isPresent():
		return nil
	case u.version < 5:
		return d.readRangesBeforeDWARF5(u, e.ranges.n, use)
	}
	at := e.ranges.n
	if e.ranges.form == formRnglistx {
		base := uint64(12)
		if u.offsetSize == 8 {
			base = 20
		}
		if u.root.rngsBase.isPresent() {
			base = u.root.rngsBase.n
		}
		offset, err := d.rngs.Number(base+at*uint64(u.offsetSize), u.offsetSize)
		if err != nil {
			return err
		}
		at = base + offset
	}
	return d.readRangesSinceDWARF5(u, at, use)
}

// rangeBaseAddress returns the base address of the offsets in the unit's range lists.
func (d *Data) rangeBaseAddress(u *debugUnit) uint64 {
	for _, v := range []attributeValue{u.root.low, u.root.entry} {
		if addr, err := d.resolveAddress(u, v); v.isPresent() && err == nil {
			return addr
		}
	}
	return 0
}

// rangeListParser parses a range list and calls add for each range.
type rangeListParser func(c *elffile.Cursor, add func(addressRange)) error

// readRangeList parses a range list and then calls use for each range. It repeats parse with more
// bytes until the list is complete.
func (d *Data) readRangeList(
	s elffile.Section, offset uint64, parse rangeListParser, use func(addressRange),
) error {
	if err := d.spendWork(workPerRangeList); err != nil {
		return err
	}
	var found []addressRange
	var failed error
	err := s.Parse(offset, func(c *elffile.Cursor) {
		found = found[:0]
		failed = parse(c, func(r addressRange) { found = append(found, r) })
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return err
	}
	for _, r := range found {
		use(r)
	}
	return nil
}

// readRangesBeforeDWARF5 reads a list of .debug_ranges, the encoding of DWARF 2 to 4.
func (d *Data) readRangesBeforeDWARF5(u *debugUnit, offset uint64, use func(addressRange)) error {
	last := ^uint64(0) >> (64 - 8*u.addressSize)
	return d.readRangeList(d.ranges, offset, func(c *elffile.Cursor, add func(addressRange)) error {
		base := d.rangeBaseAddress(u)
		for !c.Failed {
			if err := d.spendWork(1); err != nil {
				return err
			}
			low, high := c.Uint(u.addressSize), c.Uint(u.addressSize)
			switch {
			case low == 0 && high == 0:
				return nil
			case low == last:
				base = high
			case low < high: // linkers write "1, 1" for removed code
				add(addressRange{base + low, base + high})
			}
		}
		return nil
	}, use)
}

// Entries of .debug_rnglists: DWARF 5, section 7.25.
const (
	rangeEntryEndOfList = iota
	rangeEntryBaseAddressx
	rangeEntryStartxEndx
	rangeEntryStartxLength
	rangeEntryOffsetPair
	rangeEntryBaseAddress
	rangeEntryStartEnd
	rangeEntryStartLength
)

// readRangesSinceDWARF5 reads a list of .debug_rnglists, the encoding of DWARF 5.
func (d *Data) readRangesSinceDWARF5(u *debugUnit, offset uint64, use func(addressRange)) error {
	return d.readRangeList(d.rngs, offset, func(c *elffile.Cursor, add func(addressRange)) error {
		base := d.rangeBaseAddress(u)
		// A base of 0 in the list itself marks code that the linker removed.
		dropped := false
		for !c.Failed {
			if err := d.spendWork(1); err != nil {
				return err
			}
			var low, high uint64
			var err error
			switch c.Uint(1) {
			case rangeEntryEndOfList:
				return nil
			case rangeEntryBaseAddressx:
				base, err = d.indexedAddress(u, c.Uleb())
				dropped = base == 0
			case rangeEntryBaseAddress:
				base = c.Uint(u.addressSize)
				dropped = base == 0
			case rangeEntryOffsetPair:
				low, high = c.Uleb(), c.Uleb()
				if dropped {
					continue
				}
				low, high = base+low, base+high
			case rangeEntryStartxEndx:
				first, second := c.Uleb(), c.Uleb()
				var err2 error
				low, err = d.indexedAddress(u, first)
				high, err2 = d.indexedAddress(u, second)
				err = errors.Join(err, err2)
			case rangeEntryStartxLength:
				low, err = d.indexedAddress(u, c.Uleb())
				high = low + c.Uleb()
			case rangeEntryStartEnd:
				low, high = c.Uint(u.addressSize), c.Uint(u.addressSize)
			case rangeEntryStartLength:
				low = c.Uint(u.addressSize)
				high = low + c.Uleb()
			default:
				return errDamagedRanges
			}
			if err != nil && !c.Failed {
				return err
			}
			if low < high {
				add(addressRange{low, high})
			}
		}
		return nil
	}, use)
}

package dwarf

import (
	"errors"

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// errRanges is the error for a range list with an unknown kind of entry.
var errRanges = errors.New("damaged list of address ranges")

// eachRange calls use for each address range of a DIE.
func (d *Data) eachRange(u *unit, e *die, use func(addressRange)) error {
	if e.low.ok() && e.high.ok() {
		low, err := d.address(u, e.low)
		if err != nil {
			return err
		}
		high := low + e.high.n
		if !e.high.isConstant() {
			if high, err = d.address(u, e.high); err != nil {
				return err
			}
		}
		use(addressRange{low, high})
	}
	switch {
	case !e.ranges.ok():
		return nil
	case u.version < 5:
		return d.oldRanges(u, e.ranges.n, use)
	}
	at := e.ranges.n
	if e.ranges.form == formRnglistx {
		base := uint64(12)
		if u.offsetSize == 8 {
			base = 20
		}
		if u.root.rngsBase.ok() {
			base = u.root.rngsBase.n
		}
		offset, err := d.rngs.Number(base+at*uint64(u.offsetSize), u.offsetSize)
		if err != nil {
			return err
		}
		at = base + offset
	}
	return d.newRanges(u, at, use)
}

// base returns the base address of the offsets in the unit's range lists.
func (d *Data) base(u *unit) uint64 {
	for _, v := range []value{u.root.low, u.root.entry} {
		if addr, err := d.address(u, v); v.ok() && err == nil {
			return addr
		}
	}
	return 0
}

// rangeParser parses a range list and calls add for each range.
type rangeParser func(c *elffile.Cursor, add func(addressRange)) error

// gather parses a range list and then calls use for each range. It repeats parse with more bytes
// until the list is complete.
func (d *Data) gather(
	s elffile.Section, offset uint64, parse rangeParser, use func(addressRange),
) error {
	if err := d.spend(listWork); err != nil {
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

// oldRanges reads a list of .debug_ranges, the encoding of DWARF 2 to 4.
func (d *Data) oldRanges(u *unit, offset uint64, use func(addressRange)) error {
	last := ^uint64(0) >> (64 - 8*u.addressSize)
	return d.gather(d.ranges, offset, func(c *elffile.Cursor, add func(addressRange)) error {
		base := d.base(u)
		for !c.Failed {
			if err := d.spend(1); err != nil {
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
	rleEndOfList = iota
	rleBaseAddressx
	rleStartxEndx
	rleStartxLength
	rleOffsetPair
	rleBaseAddress
	rleStartEnd
	rleStartLength
)

// newRanges reads a list of .debug_rnglists, the encoding of DWARF 5.
func (d *Data) newRanges(u *unit, offset uint64, use func(addressRange)) error {
	return d.gather(d.rngs, offset, func(c *elffile.Cursor, add func(addressRange)) error {
		base := d.base(u)
		// A base of 0 in the list itself marks code that the linker removed.
		dropped := false
		for !c.Failed {
			if err := d.spend(1); err != nil {
				return err
			}
			var low, high uint64
			var err error
			switch c.Uint(1) {
			case rleEndOfList:
				return nil
			case rleBaseAddressx:
				base, err = d.indexedAddress(u, c.Uleb())
				dropped = base == 0
			case rleBaseAddress:
				base = c.Uint(u.addressSize)
				dropped = base == 0
			case rleOffsetPair:
				low, high = c.Uleb(), c.Uleb()
				if dropped {
					continue
				}
				low, high = base+low, base+high
			case rleStartxEndx:
				first, second := c.Uleb(), c.Uleb()
				var err2 error
				low, err = d.indexedAddress(u, first)
				high, err2 = d.indexedAddress(u, second)
				err = errors.Join(err, err2)
			case rleStartxLength:
				low, err = d.indexedAddress(u, c.Uleb())
				high = low + c.Uleb()
			case rleStartEnd:
				low, high = c.Uint(u.addressSize), c.Uint(u.addressSize)
			case rleStartLength:
				low = c.Uint(u.addressSize)
				high = low + c.Uleb()
			default:
				return errRanges
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

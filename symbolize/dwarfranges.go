package symbolize

import "errors"

var errRanges = errors.New("damaged list of address ranges")

// eachRange calls use for every range of addresses of a DIE.
func (d *dwarfData) eachRange(u *unit, e *die, use func(addressRange)) error {
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
		offset, err := d.rngs.number(base+at*uint64(u.offsetSize), u.offsetSize)
		if err != nil {
			return err
		}
		at = base + offset
	}
	return d.newRanges(u, at, use)
}

// base is the address that the ranges of a unit count from.
func (d *dwarfData) base(u *unit) uint64 {
	for _, v := range []value{u.root.low, u.root.entry} {
		if addr, err := d.address(u, v); v.ok() && err == nil {
			return addr
		}
	}
	return 0
}

// gather parses a list of ranges, which may need several attempts, and hands them over when it is whole.
func (d *dwarfData) gather(s section, offset uint64, list func(c *cursor, add func(addressRange)) error, use func(addressRange)) error {
	if err := d.spend(listWork); err != nil {
		return err
	}
	var found []addressRange
	var failed error
	err := s.parse(offset, func(c *cursor) {
		found = found[:0]
		failed = list(c, func(r addressRange) { found = append(found, r) })
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

// oldRanges reads a list of .debug_ranges, as until DWARF 4.
func (d *dwarfData) oldRanges(u *unit, offset uint64, use func(addressRange)) error {
	last := ^uint64(0) >> (64 - 8*u.addressSize)
	return d.gather(d.ranges, offset, func(c *cursor, add func(addressRange)) error {
		base := d.base(u)
		for !c.failed {
			if err := d.spend(1); err != nil {
				return err
			}
			low, high := c.uint(u.addressSize), c.uint(u.addressSize)
			switch {
			case low == 0 && high == 0:
				return nil
			case low == last:
				base = high
			case low < high: // linkers leave "1, 1" for code that they dropped
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

// newRanges reads a list of .debug_rnglists, as since DWARF 5.
func (d *dwarfData) newRanges(u *unit, offset uint64, use func(addressRange)) error {
	return d.gather(d.rngs, offset, func(c *cursor, add func(addressRange)) error {
		base := d.base(u)
		// A base of 0 that the list itself sets is code that the linker dropped.
		dropped := false
		for !c.failed {
			if err := d.spend(1); err != nil {
				return err
			}
			var low, high uint64
			var err error
			switch c.uint(1) {
			case rleEndOfList:
				return nil
			case rleBaseAddressx:
				base, err = d.indexedAddress(u, c.uleb())
				dropped = base == 0
			case rleBaseAddress:
				base = c.uint(u.addressSize)
				dropped = base == 0
			case rleOffsetPair:
				low, high = c.uleb(), c.uleb()
				if dropped {
					continue
				}
				low, high = base+low, base+high
			case rleStartxEndx:
				first, second := c.uleb(), c.uleb()
				var err2 error
				low, err = d.indexedAddress(u, first)
				high, err2 = d.indexedAddress(u, second)
				err = errors.Join(err, err2)
			case rleStartxLength:
				low, err = d.indexedAddress(u, c.uleb())
				high = low + c.uleb()
			case rleStartEnd:
				low, high = c.uint(u.addressSize), c.uint(u.addressSize)
			case rleStartLength:
				low = c.uint(u.addressSize)
				high = low + c.uleb()
			default:
				return errRanges
			}
			if err != nil && !c.failed {
				return err
			}
			if low < high {
				add(addressRange{low, high})
			}
		}
		return nil
	}, use)
}

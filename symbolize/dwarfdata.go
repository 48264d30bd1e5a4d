package symbolize

import (
	"debug/dwarf"
	"errors"
	"fmt"
)

// dwarfData reads DWARF 2 to 5 from a file's debug sections, a piece at a time. It takes the constants from debug/dwarf but not
// its reader, which wants all sections in memory and all abbreviations decoded before the first look-up, and which a crafted
// file makes allocate whatever a header claims.
type dwarfData struct {
	info, abbrev, str, lineStr, line section
	addr, strOffsets, ranges, rngs   section

	units  []unitHeader
	index  codeSpans // by number of unit
	cached []*unitSlot
	work   int // what is left of it
}

// unitSlot is a unit that was used not long ago.
type unitSlot struct {
	number int
	unit   *unit
	err    error
}

// lookupWork bounds what one look-up may read: DIEs, entries of range lists, fields of abbreviations, line rows; most at the
// first, which reads the ranges of all units. Ten million of them take half a second. Opening a unit and beginning a list
// count as many, for the calls of the system behind them.
const (
	lookupWork = 1 << 26
	unitWork   = 64
	listWork   = 16
)

var errWork = errors.New("debug information that takes too long to read")

// spend counts work done.
func (d *dwarfData) spend(n int) error {
	if d.work -= n; d.work < 0 {
		return errWork
	}
	return nil
}

// newDWARF reads the headers of a file's units. It returns ErrNoDebugInfo if the file has none.
func newDWARF(f *elfFile) (*dwarfData, error) {
	d := new(dwarfData)
	for name, into := range map[string]*section{
		".debug_info": &d.info, ".debug_abbrev": &d.abbrev, ".debug_str": &d.str, ".debug_line_str": &d.lineStr,
		".debug_line": &d.line, ".debug_addr": &d.addr, ".debug_str_offsets": &d.strOffsets, ".debug_ranges": &d.ranges,
		".debug_rnglists": &d.rngs,
	} {
		var err error
		if *into, err = f.openSection(name); err != nil {
			return nil, err
		}
	}
	if d.info.size == 0 {
		return nil, ErrNoDebugInfo
	}
	return d, d.readUnits()
}

// unit returns a unit by number, from memory if it was used not long ago.
func (d *dwarfData) unit(number int) (*unit, error) {
	const most = 64 << 20 // bytes of units kept
	for i, slot := range d.cached {
		if slot.number == number {
			copy(d.cached[1:], d.cached[:i])
			d.cached[0] = slot
			return slot.unit, slot.err
		}
	}
	slot := &unitSlot{number: number}
	slot.unit, slot.err = d.open(number, true)
	d.cached = append([]*unitSlot{slot}, d.cached...)
	size := 0
	for i, s := range d.cached {
		if s.unit != nil {
			size += s.unit.size()
		}
		if i >= 2 && size > most {
			clear(d.cached[i:])
			d.cached = d.cached[:i]
			break
		}
	}
	return slot.unit, slot.err
}

// unitAt returns the unit that an offset of .debug_info lies in.
func (d *dwarfData) unitAt(offset uint64) (*unit, error) {
	low, high := 0, len(d.units)
	for low < high {
		if mid := (low + high) / 2; d.units[mid].end > offset {
			high = mid
		} else {
			low = mid + 1
		}
	}
	if low == len(d.units) || offset < d.units[low].body {
		return nil, errors.New("reference to outside of all units")
	}
	return d.unit(low)
}

// readIndex learns from the root DIEs which unit describes which addresses. Units that cannot be read are left out, so that one
// damaged unit does not cost the others.
func (d *dwarfData) readIndex() error {
	d.index = codeSpans{}
	for i := range d.units {
		if !d.units[i].isCode() {
			continue
		}
		u, err := d.open(i, false)
		if errors.Is(err, errWork) {
			return fmt.Errorf("read address ranges: %w", err)
		}
		if err != nil {
			continue
		}
		err = d.eachRange(u, &u.root, func(r addressRange) {
			if r.isCode() {
				d.index = append(d.index, codeSpan{r, uint64(i)})
			}
		})
		if errors.Is(err, errWork) || len(d.index) > maxSpans {
			return fmt.Errorf("read address ranges: %w", errWork)
		}
	}
	d.index.sort()
	return nil
}

// readFunctions finds the functions of a unit and where their code is, once.
func (d *dwarfData) readFunctions(u *unit) error {
	if u.parsed {
		return nil
	}
	u.parsed = true
	err := d.each(u, u.body, func(e *die) bool {
		if e.tag != dwarf.TagSubprogram || !e.low.ok() && !e.ranges.ok() {
			return true
		}
		// A damaged list of ranges costs this function only.
		err := d.eachRange(u, e, func(r addressRange) {
			if r.isCode() {
				u.functions = append(u.functions, codeSpan{r, e.offset})
			}
		})
		return !errors.Is(err, errWork) && len(u.functions) < maxSpans
	})
	u.functions.sort()
	return err
}

// text returns a string value, "" where it has none or cannot be read.
func (d *dwarfData) text(u *unit, v value) string {
	switch {
	case v.form == formString:
		return d.info.string(v.n)
	case v.form == formStrp:
		return d.str.string(v.n)
	case v.form == formLineStrp:
		return d.lineStr.string(v.n)
	case v.form == formStrx || v.form >= formStrx1 && v.form <= formStrx4:
		base := uint64(2 * u.offsetSize) // behind the header, where no attribute says otherwise
		if u.root.strBase.ok() {
			base = u.root.strBase.n
		}
		if offset, err := d.strOffsets.number(base+v.n*uint64(u.offsetSize), u.offsetSize); err == nil {
			return d.str.string(offset)
		}
	}
	return ""
}

// address returns an address, which newer files keep in .debug_addr.
func (d *dwarfData) address(u *unit, v value) (uint64, error) {
	if !v.isAddressIndex() {
		return v.n, nil
	}
	return d.indexedAddress(u, v.n)
}

func (d *dwarfData) indexedAddress(u *unit, index uint64) (uint64, error) {
	base := uint64(8)
	if u.root.addrBase.ok() {
		base = u.root.addrBase.n
	}
	return d.addr.number(base+index*uint64(u.addressSize), u.addressSize)
}

// functionName returns the linkage name of a function or, where it has none, its plain name: from the DIE or from the one that
// it is an instance or the definition of.
func (d *dwarfData) functionName(u *unit, e die) string {
	plain := ""
	for range 8 { // more than there are kinds of such DIEs
		if name := d.text(u, e.linkage); name != "" {
			return name
		}
		if plain == "" {
			plain = d.text(u, e.name)
		}
		next := e.origin
		if !next.ok() {
			next = e.specification
		}
		if !next.ok() {
			break
		}
		var err error
		if u, err = d.unitAt(next.n); err != nil {
			break
		}
		found := false
		err = d.each(u, next.n, func(at *die) bool { e, found = *at, true; return false })
		if err != nil || !found {
			break
		}
	}
	return plain
}

package dwarf

import (
	"debug/dwarf"
	"errors"
	"fmt"

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// ErrNone is the error of New for a file without DWARF.
var ErrNone = errors.New("no debug information")

// Data is the debug information of one ELF file. Lookups read the file. A Data uses 24 bytes of
// memory for each address range, and up to 64 MiB to cache units. It is not safe for concurrent
// use.
type Data struct {
	info, abbrev, str, lineStr, line elffile.Section
	addr, strOffsets, ranges, rngs   elffile.Section

	units  []unitHeader
	index  codeSpans     // address ranges of all units, with unit numbers
	cached []*cachedUnit // most recently used first
	work   int           // remaining work budget of the current lookup, see maxWorkPerLookup
}

// cachedUnit is a cached unit, or the error of reading it.
type cachedUnit struct {
	number int
	unit   *debugUnit
	err    error
}

// Work budget of one lookup. One DIE, one entry of a range list, one field of an abbreviation, or
// one row of a line table costs 1. Ten million of them take half a second. Opening a unit costs
// workPerUnit and opening a list costs workPerRangeList, because both make system calls. The first
// lookup needs most, because it reads the ranges of all units.
const (
	maxWorkPerLookup = 1 << 26
	workPerUnit      = 64
	workPerRangeList = 16
)

// errWorkExhausted is the error of a lookup that exceeds its work budget.
var errWorkExhausted = errors.New("debug information that takes too long to read")

// spendWork subtracts n from the work budget of the current lookup. It returns errWorkExhausted if
// the budget is exhausted.
func (d *Data) spendWork(n int) error {
	if d.work -= n; d.work < 0 {
		return errWorkExhausted
	}
	return nil
}

// New reads the headers of all units of a file. It returns ErrNone if the file has no DWARF.
func New(f *elffile.File) (*Data, error) {
	d := new(Data)
	for name, into := range map[string]*elffile.Section{
		".debug_info": &d.info, ".debug_abbrev": &d.abbrev, ".debug_str": &d.str,
		".debug_line_str": &d.lineStr, ".debug_line": &d.line, ".debug_addr": &d.addr,
		".debug_str_offsets": &d.strOffsets, ".debug_ranges": &d.ranges,
		".debug_rnglists": &d.rngs,
	} {
		var err error
		if *into, err = f.Section(name); err != nil {
			return nil, err
		}
	}
	if d.info.Size() == 0 {
		return nil, ErrNone
	}
	return d, d.readUnitHeaders()
}

// loadUnit returns the unit with a number, from the cache if possible.
func (d *Data) loadUnit(number int) (*debugUnit, error) {
	const most = 64 << 20 // bytes of cached units
	for i, slot := range d.cached {
		if slot.number == number {
			copy(d.cached[1:], d.cached[:i])
			d.cached[0] = slot
			return slot.unit, slot.err
		}
	}
	slot := &cachedUnit{number: number}
	slot.unit, slot.err = d.openUnit(number, true)
	d.cached = append([]*cachedUnit{slot}, d.cached...)
	size := 0
	for i, s := range d.cached {
		if s.unit != nil {
			size += s.unit.estimateMemoryBytes()
		}
		if i >= 2 && size > most {
			clear(d.cached[i:])
			d.cached = d.cached[:i]
			break
		}
	}
	return slot.unit, slot.err
}

// unitAtOffset returns the unit that contains an offset of .debug_info.
func (d *Data) unitAtOffset(offset uint64) (*debugUnit, error) {
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
	return d.loadUnit(low)
}

// readUnitRanges reads the address ranges of all units from their root DIEs. It ignores units that
// it cannot read.
func (d *Data) readUnitRanges() error {
	d.index = codeSpans{}
	for i := range d.units {
		if !d.units[i].mayDescribeCode() {
			continue
		}
		u, err := d.openUnit(i, false)
		if errors.Is(err, errWorkExhausted) {
			return fmt.Errorf("read address ranges: %w", err)
		}
		if err != nil {
			continue
		}
		err = d.eachDIERange(u, &u.root, func(r addressRange) {
			if r.mayContainCode() {
				d.index = append(d.index, codeSpan{r, uint64(i)})
			}
		})
		if errors.Is(err, errWorkExhausted) || len(d.index) > maxCodeSpans {
			return fmt.Errorf("read address ranges: %w", errWorkExhausted)
		}
	}
	d.index.sortByStart()
	return nil
}

// readFunctions reads the functions of a unit and their address ranges into u.functions. It does so
// once.
func (d *Data) readFunctions(u *debugUnit) error {
	if u.parsed {
		return nil
	}
	u.parsed = true
	err := d.walkDIEs(u, u.body, func(e *debugEntry) bool {
		if e.tag != dwarf.TagSubprogram || !e.low.isPresent() && !e.ranges.isPresent() {
			return true
		}
		// A damaged range list hides only this function.
		err := d.eachDIERange(u, e, func(r addressRange) {
			if r.mayContainCode() {
				u.functions = append(u.functions, codeSpan{r, e.offset})
			}
		})
		return !errors.Is(err, errWorkExhausted) && len(u.functions) < maxCodeSpans
	})
	u.functions.sortByStart()
	return err
}

// resolveString returns the string of a value. It returns "" if the value is not a string or cannot
// be read.
func (d *Data) resolveString(u *debugUnit, v attributeValue) string {
	switch {
	case v.form == formString:
		return d.info.Text(v.n)
	case v.form == formStrp:
		return d.str.Text(v.n)
	case v.form == formLineStrp:
		return d.lineStr.Text(v.n)
	case v.form == formStrx || v.form >= formStrx1 && v.form <= formStrx4:
		base := uint64(2 * u.offsetSize) // header size, unless an attribute overrides it
		if u.root.strBase.isPresent() {
			base = u.root.strBase.n
		}
		offset, err := d.strOffsets.Number(base+v.n*uint64(u.offsetSize), u.offsetSize)
		if err == nil {
			return d.str.Text(offset)
		}
	}
	return ""
}

// resolveAddress returns the address of a value. DWARF 5 may store the address in .debug_addr.
func (d *Data) resolveAddress(u *debugUnit, v attributeValue) (uint64, error) {
	if !v.isAddressIndex() {
		return v.n, nil
	}
	return d.indexedAddress(u, v.n)
}

// indexedAddress returns an entry of .debug_addr.
func (d *Data) indexedAddress(u *debugUnit, index uint64) (uint64, error) {
	base := uint64(8)
	if u.root.addrBase.isPresent() {
		base = u.root.addrBase.n
	}
	return d.addr.Number(base+index*uint64(u.addressSize), u.addressSize)
}

// functionName returns the linkage name of a function or, without one, its plain name. The name can
// be in the DIE e, in the abstract function that e is an instance of, or in the declaration that e
// defines.
func (d *Data) functionName(u *debugUnit, e debugEntry) string {
	plain := ""
	for range 8 { // compilers chain fewer than 8 references
		if name := d.resolveString(u, e.linkage); name != "" {
			return name
		}
		if plain == "" {
			plain = d.resolveString(u, e.name)
		}
		next := e.origin
		if !next.isPresent() {
			next = e.specification
		}
		if !next.isPresent() {
			break
		}
		var err error
		if u, err = d.unitAtOffset(next.n); err != nil {
			break
		}
		found := false
		err = d.walkDIEs(u, next.n, func(at *debugEntry) bool { e, found = *at, true; return false })
		if err != nil || !found {
			break
		}
	}
	return plain
}

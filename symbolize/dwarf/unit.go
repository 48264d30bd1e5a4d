package dwarf

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// Limits on DWARF, far above the output of compilers.
const (
	maxDebugUnits = 1 << 20
	maxCodeSpans  = 1 << 22 // address ranges of all units, or of the functions of one unit
)

// unitHeader has the position of a unit in .debug_info and the unit's encoding.
type unitHeader struct {
	unitEncoding
	start, body, end uint64 // offsets: header, first DIE, end of the unit
	abbrevs          uint64 // offset in .debug_abbrev
	typ              uint64 // DW_UT_*, 0 before DWARF 5
}

// addressRange is the address range from low to high-1.
type addressRange struct{ low, high uint64 }

// mayContainCode reports whether the range can contain code. Linkers make ranges of removed code
// empty, or move them to 0 or to the last addresses.
func (r addressRange) mayContainCode() bool { return r.low != 0 && r.low < r.high && r.high < 1<<63 }

// containsAddress reports whether the range contains addr.
func (r addressRange) containsAddress(addr uint64) bool { return r.low <= addr && addr < r.high }

// codeSpan maps an address range to a unit number, or to the offset of a DIE.
type codeSpan struct {
	addressRange
	at uint64
}

// codeSpans are code spans, sorted by start address.
type codeSpans []codeSpan

// sortByStart sorts by start address; at the same start, longer spans come first.
func (s codeSpans) sortByStart() {
	slices.SortFunc(s, func(a, b codeSpan) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(b.high, a.high))
	})
}

// findInnermost returns the value of the innermost span that contains addr.
func (s codeSpans) findInnermost(addr uint64) (at uint64, ok bool) {
	const maxWalk = 64 // ranges rarely nest
	next := sort.Search(len(s), func(i int) bool { return s[i].low > addr })
	for i := next - 1; i >= max(0, next-maxWalk); i-- {
		if s[i].containsAddress(addr) {
			return s[i].at, true
		}
	}
	return 0, false
}

// debugEntry is one DIE (debugging information entry) with its attributes for code, names and
// source lines.
type debugEntry struct {
	offset   uint64
	tag      dwarf.Tag
	children bool
	depth    int

	low, high, ranges, entry    attributeValue
	name, linkage               attributeValue
	origin, specification       attributeValue // offsets in .debug_info
	callFile, callLine          attributeValue
	lines, compDir              attributeValue // these and the following only for units
	addrBase, strBase, rngsBase attributeValue
}

// attrMIPSLinkageName is the attribute of the linkage name before DWARF 4.
const attrMIPSLinkageName dwarf.Attr = 0x2007

// fieldOfAttribute returns the field of an attribute, or nil for an unused attribute.
func (e *debugEntry) fieldOfAttribute(attr dwarf.Attr) *attributeValue {
	switch attr {
	case dwarf.AttrLowpc:
		return &e.low
	case dwarf.AttrHighpc:
		return &e.high
	case dwarf.AttrRanges:
		return &e.ranges
	case dwarf.AttrEntrypc:
		return &e.entry
	case dwarf.AttrName:
		return &e.name
	case dwarf.AttrLinkageName, attrMIPSLinkageName:
		return &e.linkage
	case dwarf.AttrAbstractOrigin:
		return &e.origin
	case dwarf.AttrSpecification:
		return &e.specification
	case dwarf.AttrCallFile:
		return &e.callFile
	case dwarf.AttrCallLine:
		return &e.callLine
	case dwarf.AttrStmtList:
		return &e.lines
	case dwarf.AttrCompDir:
		return &e.compDir
	case dwarf.AttrAddrBase:
		return &e.addrBase
	case dwarf.AttrStrOffsetsBase:
		return &e.strBase
	case dwarf.AttrRnglistsBase:
		return &e.rngsBase
	}
	return nil
}

// debugUnit is one unit of .debug_info in memory.
type debugUnit struct {
	unitHeader
	table map[uint64]abbrev
	root  debugEntry

	functions codeSpans // with offsets of DIEs; set by readFunctions
	parsed    bool
	lines     *lineTable // set by lineTableOfUnit
	linesErr  error
}

// estimateMemoryBytes estimates the memory of the unit in bytes.
func (u *debugUnit) estimateMemoryBytes() int {
	const unitSize = 1 << 10
	n := unitSize + 128*len(u.table) + 24*len(u.functions)
	if u.lines != nil {
		n += 16*len(u.lines.rows) + 100*len(u.lines.files)
	}
	return n
}

// readUnitHeader reads the unit header at offset. It checks that the unit ends within the section.
func readUnitHeader(s elffile.Section, offset uint64) (unitHeader, error) {
	raw, err := s.Bytes(offset, min(32, s.Size()-offset))
	if err != nil {
		return unitHeader{}, err
	}
	c := &elffile.Cursor{Data: raw}
	u := unitHeader{start: offset, unitEncoding: unitEncoding{offsetSize: 4}}
	length := c.Uint(4)
	if length == 0xffffffff {
		u.offsetSize = 8
		length = c.Uint(8)
	}
	if left := s.Size() - offset - uint64(c.At); c.Failed || length > left {
		return u, errors.New("a unit reaches past the end of .debug_info")
	}
	u.end = offset + uint64(c.At) + length
	u.version = int(c.Uint(2))
	if u.version >= 5 {
		u.typ = c.Uint(1)
		u.addressSize = int(c.Uint(1))
		u.abbrevs = c.Uint(u.offsetSize)
		const skeleton, splitCompile = 4, 5
		if u.typ == skeleton || u.typ == splitCompile {
			c.Take(8)
		}
	} else {
		u.abbrevs = c.Uint(u.offsetSize)
		u.addressSize = int(c.Uint(1))
	}
	u.body = offset + uint64(c.At)
	known := u.version >= 2 && u.version <= 5 && u.addressSize >= 1 && u.addressSize <= 8
	if c.Failed || u.body > u.end || !known {
		u.version = 0 // unreadable, but later units may be readable
	}
	return u, nil
}

// mayDescribeCode reports whether the unit may describe code. Type units, partial units and units
// of an unknown version do not.
func (u *unitHeader) mayDescribeCode() bool {
	const compile, skeleton = 1, 4
	return u.version != 0 && (u.version < 5 || u.typ == compile || u.typ == skeleton)
}

// readUnitHeaders reads the headers of all units, up to the first damaged one.
func (d *Data) readUnitHeaders() error {
	for offset := uint64(0); offset+4 <= d.info.Size(); {
		u, err := readUnitHeader(d.info, offset)
		if err != nil {
			if len(d.units) > 0 {
				return nil
			}
			return fmt.Errorf("read .debug_info: %w", err)
		}
		if len(d.units) == maxDebugUnits {
			return fmt.Errorf("more than %d units in .debug_info", maxDebugUnits)
		}
		d.units = append(d.units, u)
		offset = u.end
	}
	return nil
}

// openUnit reads the unit with a number and its root DIE. If whole is false, it reads only the
// abbreviation of the root DIE.
func (d *Data) openUnit(number int, whole bool) (*debugUnit, error) {
	u := &debugUnit{unitHeader: d.units[number]}
	if u.version == 0 {
		return nil, errors.New("unit of an unknown version")
	}
	if err := d.spendWork(workPerUnit); err != nil {
		return nil, err
	}
	code := uint64(0)
	if !whole {
		raw, err := d.info.Bytes(u.body, min(10, u.end-u.body))
		if err != nil {
			return nil, err
		}
		code = (&elffile.Cursor{Data: raw}).Uleb()
	}
	var err error
	if u.table, err = d.readAbbrevTable(u.abbrevs, code); err != nil {
		return nil, err
	}
	return u, d.walkDIEs(u, u.body, func(e *debugEntry) bool { u.root = *e; return false })
}

// decodeDIE decodes the DIE at the cursor. offset is the DIE's offset in .debug_info. The tag is 0
// for the entry that ends a list of children.
func (e *debugEntry) decodeDIE(u *debugUnit, c *elffile.Cursor, offset uint64) {
	*e = debugEntry{offset: offset}
	start := uint64(c.At)
	code := c.Uleb()
	if code == 0 {
		return
	}
	a, ok := u.table[code]
	if !ok {
		c.Failed = true
		return
	}
	e.tag, e.children = a.tag, a.children
	for i := range a.fields {
		f := &a.fields[i]
		v := u.readValue(c, f.form, f.implicit)
		into := e.fieldOfAttribute(f.attr)
		if into == nil {
			continue
		}
		switch v.form {
		case formString:
			v.n += offset - start
		case formRef1, formRef2, formRef4, formRef8, formRefUdata:
			v.form, v.n = formRefAddr, v.n+u.start // relative to the header of the unit
		}
		isReference := f.attr == dwarf.AttrAbstractOrigin || f.attr == dwarf.AttrSpecification
		if isReference && v.form != formRefAddr {
			continue // a reference to a DIE in another file
		}
		*into = v
	}
}

// walkDIEs calls use for the DIE at an offset of .debug_info and all its descendants, until use
// returns false. die.depth is the depth below the first DIE. each returns an error for damaged
// data, and errWorkExhausted if the work budget is exhausted.
func (d *Data) walkDIEs(u *debugUnit, offset uint64, use func(*debugEntry) bool) error {
	if offset < u.body || offset >= u.end {
		return errors.New("reference to outside of a unit")
	}
	// Most trees are small. Large trees are read in growing pieces.
	const first, growth, usual, most = 1 << 10, 4, 256 << 10, 16 << 20
	c := &elffile.Cursor{}
	var e debugEntry
	size := uint64(first)
	for depth := 0; offset < u.end; {
		if err := d.spendWork(1); err != nil {
			return err
		}
		start := c.At
		e.decodeDIE(u, c, offset)
		if c.Failed {
			// The piece may end within a DIE: read a larger piece if there are more bytes.
			if start == 0 && (uint64(len(c.Data)) >= min(most, u.end-offset)) {
				return errors.New("damaged unit")
			}
			raw, err := d.info.Bytes(offset, min(size, u.end-offset))
			if err != nil {
				return err
			}
			*c = elffile.Cursor{Data: raw}
			if size < usual || start == 0 {
				size *= growth
			}
			continue
		}
		offset += uint64(c.At - start)
		if e.tag == 0 {
			if depth--; depth <= 0 {
				return nil
			}
			continue
		}
		e.depth = depth
		if !use(&e) {
			return nil
		}
		if e.children {
			depth++
		} else if depth == 0 {
			return nil
		}
	}
	return nil
}

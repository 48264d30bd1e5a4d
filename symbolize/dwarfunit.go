package symbolize

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"sort"
)

// Limits on DWARF, far above what compilers write.
const (
	maxUnits = 1 << 20
	maxSpans = 1 << 22 // address ranges of all units, or of the functions of one
)

// unitHeader is where a unit of .debug_info lies and how it is encoded.
type unitHeader struct {
	encoding
	start, body, end uint64 // of the header, of the first DIE, behind the last
	abbrevs          uint64 // offset of its abbreviations
	typ              uint64 // DW_UT_*, 0 before DWARF 5
}

// addressRange is addresses from low to before high.
type addressRange struct{ low, high uint64 }

// isCode leaves out what linkers make of code that they dropped: ranges that begin at 0 or at the last addresses, or are empty.
func (r addressRange) isCode() bool { return r.low != 0 && r.low < r.high && r.high < 1<<63 }

func (r addressRange) has(addr uint64) bool { return r.low <= addr && addr < r.high }

// codeSpan says that a range of addresses is described by a unit, given by its number, or a DIE, given by its offset.
type codeSpan struct {
	addressRange
	at uint64
}

// codeSpans is address ranges in the order of their starts.
type codeSpans []codeSpan

func (s codeSpans) sort() {
	slices.SortFunc(s, func(a, b codeSpan) int { return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(b.high, a.high)) })
}

// find returns the span around addr that starts last.
func (s codeSpans) find(addr uint64) (at uint64, ok bool) {
	const maxWalk = 64 // ranges hardly ever nest
	next := sort.Search(len(s), func(i int) bool { return s[i].low > addr })
	for i := next - 1; i >= max(0, next-maxWalk); i-- {
		if s[i].has(addr) {
			return s[i].at, true
		}
	}
	return 0, false
}

// die is what is read of one DIE: the attributes that tell code, names and places.
type die struct {
	offset   uint64
	tag      dwarf.Tag
	children bool
	depth    int

	low, high, ranges, entry    value
	name, linkage               value
	origin, specification       value // offsets in .debug_info
	callFile, callLine          value
	lines, compDir              value // these of units only
	addrBase, strBase, rngsBase value
}

// attrMIPSLinkageName is the linkage name before DWARF 4.
const attrMIPSLinkageName dwarf.Attr = 0x2007

// field returns where the attribute belongs, nil if nobody wants it.
func (d *die) field(attr dwarf.Attr) *value {
	switch attr {
	case dwarf.AttrLowpc:
		return &d.low
	case dwarf.AttrHighpc:
		return &d.high
	case dwarf.AttrRanges:
		return &d.ranges
	case dwarf.AttrEntrypc:
		return &d.entry
	case dwarf.AttrName:
		return &d.name
	case dwarf.AttrLinkageName, attrMIPSLinkageName:
		return &d.linkage
	case dwarf.AttrAbstractOrigin:
		return &d.origin
	case dwarf.AttrSpecification:
		return &d.specification
	case dwarf.AttrCallFile:
		return &d.callFile
	case dwarf.AttrCallLine:
		return &d.callLine
	case dwarf.AttrStmtList:
		return &d.lines
	case dwarf.AttrCompDir:
		return &d.compDir
	case dwarf.AttrAddrBase:
		return &d.addrBase
	case dwarf.AttrStrOffsetsBase:
		return &d.strBase
	case dwarf.AttrRnglistsBase:
		return &d.rngsBase
	}
	return nil
}

// unit is what is kept of one unit of .debug_info.
type unit struct {
	unitHeader
	table map[uint64]abbrev
	root  die

	functions codeSpans // by DIE; set by readFunctions
	parsed    bool
	lines     *lineTable // set by lineTable
	linesErr  error
}

// size is about how many bytes of memory the unit takes.
func (u *unit) size() int {
	const unitSize = 1 << 10
	n := unitSize + 128*len(u.table) + 24*len(u.functions)
	if u.lines != nil {
		n += 16*len(u.lines.rows) + 100*len(u.lines.files)
	}
	return n
}

// readUnitHeader reads the header at offset; its end is checked to lie in the section.
func readUnitHeader(s section, offset uint64) (unitHeader, error) {
	raw, err := s.bytes(offset, min(32, s.size-offset))
	if err != nil {
		return unitHeader{}, err
	}
	c := &cursor{data: raw}
	u := unitHeader{start: offset, encoding: encoding{offsetSize: 4}}
	length := c.uint(4)
	if length == 0xffffffff {
		u.offsetSize = 8
		length = c.uint(8)
	}
	if left := s.size - offset - uint64(c.at); c.failed || length > left {
		return u, errors.New("a unit reaches past the end of .debug_info")
	}
	u.end = offset + uint64(c.at) + length
	u.version = int(c.uint(2))
	if u.version >= 5 {
		u.typ = c.uint(1)
		u.addressSize = int(c.uint(1))
		u.abbrevs = c.uint(u.offsetSize)
		const skeleton, splitCompile = 4, 5
		if u.typ == skeleton || u.typ == splitCompile {
			c.take(8)
		}
	} else {
		u.abbrevs = c.uint(u.offsetSize)
		u.addressSize = int(c.uint(1))
	}
	u.body = offset + uint64(c.at)
	if c.failed || u.body > u.end || u.version < 2 || u.version > 5 || u.addressSize < 1 || u.addressSize > 8 {
		u.version = 0 // unknown, but one can go on behind it
	}
	return u, nil
}

// isCode reports whether the unit may describe code: not types, not pieces shared by others, nothing unknown.
func (u *unitHeader) isCode() bool {
	const compile, skeleton = 1, 4
	return u.version != 0 && (u.version < 5 || u.typ == compile || u.typ == skeleton)
}

// readUnits reads the headers of all units, up to the first damaged one.
func (d *dwarfData) readUnits() error {
	for offset := uint64(0); offset+4 <= d.info.size; {
		u, err := readUnitHeader(d.info, offset)
		if err != nil {
			if len(d.units) > 0 {
				return nil
			}
			return fmt.Errorf("read .debug_info: %w", err)
		}
		if len(d.units) == maxUnits {
			return fmt.Errorf("more than %d units in .debug_info", maxUnits)
		}
		d.units = append(d.units, u)
		offset = u.end
	}
	return nil
}

// open returns a unit by number with its root DIE; whole is false for those who want nothing but the root.
func (d *dwarfData) open(number int, whole bool) (*unit, error) {
	u := &unit{unitHeader: d.units[number]}
	if u.version == 0 {
		return nil, errors.New("unit of an unknown version")
	}
	if err := d.spend(unitWork); err != nil {
		return nil, err
	}
	code := uint64(0)
	if !whole {
		raw, err := d.info.bytes(u.body, min(10, u.end-u.body))
		if err != nil {
			return nil, err
		}
		code = (&cursor{data: raw}).uleb()
	}
	var err error
	if u.table, err = d.readAbbrevs(u.abbrevs, code); err != nil {
		return nil, err
	}
	return u, d.each(u, u.body, func(e *die) bool { u.root = *e; return false })
}

// read reads the DIE at the cursor, which lies at an offset of .debug_info. The tag is 0 for the mark at the end of children.
func (e *die) read(u *unit, c *cursor, offset uint64) {
	*e = die{offset: offset}
	start := uint64(c.at)
	code := c.uleb()
	if code == 0 {
		return
	}
	a, ok := u.table[code]
	if !ok {
		c.failed = true
		return
	}
	e.tag, e.children = a.tag, a.children
	for i := range a.fields {
		f := &a.fields[i]
		v := u.value(c, f.form, f.implicit)
		into := e.field(f.attr)
		if into == nil {
			continue
		}
		switch v.form {
		case formString:
			v.n += offset - start
		case formRef1, formRef2, formRef4, formRef8, formRefUdata:
			v.form, v.n = formRefAddr, v.n+u.start // references within the unit count from its header
		}
		if refers := f.attr == dwarf.AttrAbstractOrigin || f.attr == dwarf.AttrSpecification; refers && v.form != formRefAddr {
			continue // into another file
		}
		*into = v
	}
}

// each calls use for every DIE from an offset of .debug_info on, with its depth below the first, until that one's children
// end or use returns false. It returns an error for damaged data and where the work is too much.
func (d *dwarfData) each(u *unit, offset uint64, use func(*die) bool) error {
	if offset < u.body || offset >= u.end {
		return errors.New("reference to outside of a unit")
	}
	// Most trees are small; long ones are read in ever larger pieces.
	const first, growth, usual, most = 1 << 10, 4, 256 << 10, 16 << 20
	c := &cursor{}
	var e die
	size := uint64(first)
	for depth := 0; offset < u.end; {
		if err := d.spend(1); err != nil {
			return err
		}
		start := c.at
		e.read(u, c, offset)
		if c.failed {
			// Not damaged, unless there are no more bytes.
			if start == 0 && (uint64(len(c.data)) >= min(most, u.end-offset)) {
				return errors.New("damaged unit")
			}
			raw, err := d.info.bytes(offset, min(size, u.end-offset))
			if err != nil {
				return err
			}
			*c = cursor{data: raw}
			if size < usual || start == 0 {
				size *= growth
			}
			continue
		}
		offset += uint64(c.at - start)
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

package dwarf

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// Limits of one line table. With link-time optimization a table has some hundred thousand rows.
const (
	maxLineTableBytes     = 256 << 20
	maxLineTableRows      = 1 << 22
	maxLineTablePathBytes = 16 << 20 // bytes of all file and directory names
)

// errDamagedLineTable is the error for a line table that cannot be decoded.
var errDamagedLineTable = errors.New("damaged line table")

// lineTable maps the code addresses of a unit to files and lines.
type lineTable struct {
	dirs, files []string
	fileDirs    []uint64 // for each file, its index in dirs
	firstFile   uint64   // number of files[0]: 0 since DWARF 5, 1 before
	compDir     string
	rows        []lineRow
	sequences   []lineSequence // sorted by address
}

// lineRow maps the code from addr to the next row to a source line. Line 0 means no line.
type lineRow struct {
	addr       uint64
	file, line uint32
}

// lineSequence is rows[first:last], which cover an address range without gaps.
type lineSequence struct {
	addressRange
	first, last int
}

// lineTableOfUnit returns the line table of a unit. It reads the table once.
func (d *Data) lineTableOfUnit(u *debugUnit) (*lineTable, error) {
	if u.lines == nil && u.linesErr == nil {
		u.lines, u.linesErr = d.readLineTable(u)
		if u.linesErr != nil {
			u.linesErr = fmt.Errorf("read .debug_line: %w", u.linesErr)
		}
	}
	return u.lines, u.linesErr
}

// readLineTable reads the line table of a unit.
func (d *Data) readLineTable(u *debugUnit) (*lineTable, error) {
	t := &lineTable{firstFile: 1, compDir: d.resolveString(u, u.root.compDir)}
	if !u.root.lines.isPresent() {
		return t, nil
	}
	offset := u.root.lines.n
	enc := unitEncoding{offsetSize: 4, addressSize: u.addressSize}
	length, err := d.line.Number(offset, 4)
	offset += 4
	if err == nil && length == 0xffffffff {
		enc.offsetSize = 8
		length, err = d.line.Number(offset, 8)
		offset += 8
	}
	if err != nil || length > maxLineTableBytes {
		return nil, errDamagedLineTable
	}
	raw, err := d.line.Bytes(offset, length)
	if err != nil {
		return nil, err
	}
	c := &elffile.Cursor{Data: raw}
	p := lineProgram{c: c, table: t, data: d}
	if err := p.readHeader(u, enc); err != nil {
		return nil, err
	}
	if err := p.runProgram(); err != nil {
		return nil, err
	}
	slices.SortFunc(t.sequences, func(a, b lineSequence) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.first, b.first))
	})
	return t, nil
}

// findRow returns the row for the code at addr.
func (t *lineTable) findRow(addr uint64) (lineRow, bool) {
	const maxWalk = 64 // one sequence suffices in valid files: they do not overlap
	next := sort.Search(len(t.sequences), func(i int) bool { return t.sequences[i].low > addr })
	for i := next - 1; i >= max(0, next-maxWalk); i-- {
		s := &t.sequences[i]
		if !s.containsAddress(addr) {
			continue
		}
		rows := t.rows[s.first:s.last]
		if k := sort.Search(len(rows), func(k int) bool { return rows[k].addr > addr }); k > 0 {
			return rows[k-1], true
		}
	}
	return lineRow{}, false
}

// sourcePath returns the source path of a file number, as the compiler saw it. It returns "" for an
// unknown number.
func (t *lineTable) sourcePath(file uint64) string {
	i := file - t.firstFile
	if i >= uint64(len(t.files)) {
		return ""
	}
	name := t.files[i]
	if path.IsAbs(name) || name == "" {
		return name
	}
	dir := ""
	if k := t.fileDirs[i]; k < uint64(len(t.dirs)) {
		dir = t.dirs[k]
	}
	if !path.IsAbs(dir) {
		dir = path.Join(t.compDir, dir)
	}
	return path.Join(dir, name)
}

// lineProgram reads one line table: the header, then the program that generates the rows.
type lineProgram struct {
	c     *elffile.Cursor
	table *lineTable
	data  *Data

	minLength, lineRange, opcodeBase uint64
	lineBase                         int64
	operands                         []byte // number of operands of each standard opcode
	pathBytes                        int
}

// readHeader reads the header of the table: DWARF 5, section 6.2.4.
func (p *lineProgram) readHeader(u *debugUnit, enc unitEncoding) error {
	c := p.c
	enc.version = int(c.Uint(2))
	if enc.version < 2 || enc.version > 5 {
		return fmt.Errorf("version %d", enc.version)
	}
	if enc.version >= 5 {
		enc.addressSize = int(c.Uint(1))
		c.Take(1) // size of segment selectors
	}
	headerLength := c.Uint(enc.offsetSize)
	if c.Failed || headerLength > uint64(len(c.Data)-c.At) ||
		enc.addressSize < 1 || enc.addressSize > 8 {
		return errDamagedLineTable
	}
	program := c.At + int(headerLength)
	p.minLength = c.Uint(1)
	if enc.version >= 4 {
		c.Take(1) // operations per instruction: above 1 only on VLIW machines
	}
	c.Take(1) // default of is_stmt
	p.lineBase = int64(int8(c.Uint(1)))
	p.lineRange = c.Uint(1)
	p.opcodeBase = c.Uint(1)
	if p.lineRange == 0 || p.opcodeBase == 0 {
		return errDamagedLineTable
	}
	p.operands = c.Take(p.opcodeBase - 1)
	if enc.version < 5 {
		p.readFilesBeforeDWARF5()
	} else if err := p.readFilesSinceDWARF5(u, enc); err != nil {
		return err
	}
	if c.Failed {
		return errDamagedLineTable
	}
	c.At = program
	return nil
}

// readFilesBeforeDWARF5 reads the names of directories and files in the encoding of DWARF 2 to 4.
func (p *lineProgram) readFilesBeforeDWARF5() {
	c, t := p.c, p.table
	t.dirs = []string{t.compDir}
	for {
		dir := c.Text()
		if dir == "" || c.Failed {
			break
		}
		t.dirs = append(t.dirs, dir)
	}
	for {
		name := c.Text()
		if name == "" || c.Failed {
			return
		}
		t.files = append(t.files, name)
		t.fileDirs = append(t.fileDirs, c.Uleb())
		c.Uleb() // time
		c.Uleb() // size
	}
}

// readFilesSinceDWARF5 reads the names of directories and files in the encoding of DWARF 5.
func (p *lineProgram) readFilesSinceDWARF5(u *debugUnit, enc unitEncoding) error {
	dirs, _, err := p.readNameEntries(u, enc)
	if err != nil {
		return err
	}
	p.table.dirs = dirs
	p.table.firstFile = 0
	p.table.files, p.table.fileDirs, err = p.readNameEntries(u, enc)
	return err
}

// readNameEntries reads a list of names. The list starts with the formats of its entries.
func (p *lineProgram) readNameEntries(u *debugUnit, enc unitEncoding) (names []string, dirs []uint64, err error) {
	const contentPath, contentDirectory = 1, 2
	c := p.c
	type format struct {
		content uint64
		form    attributeForm
	}
	formats := make([]format, c.Uint(1))
	for i := range formats {
		formats[i] = format{c.Uleb(), attributeForm(c.Uleb())}
	}
	for left := c.Uleb(); left > 0; left-- {
		var name string
		var dir uint64
		before := c.At
		for _, f := range formats {
			v := enc.readValue(c, f.form, 0)
			switch {
			case f.content == contentPath && v.form == formString:
				rest := c.Data[min(v.n, uint64(len(c.Data))):]
				raw, _, _ := bytes.Cut(rest, []byte{0})
				name = string(raw)
			case f.content == contentPath:
				name = p.data.resolveString(u, v)
			case f.content == contentDirectory:
				dir = v.n
			}
		}
		if p.pathBytes += len(name); c.Failed || c.At == before || p.pathBytes > maxLineTablePathBytes {
			return nil, nil, errDamagedLineTable
		}
		names, dirs = append(names, name), append(dirs, dir)
	}
	return names, dirs, nil
}

// Opcodes of line programs: DWARF 5, sections 6.2.5.2 and 6.2.5.3.
const (
	lineOpExtended = iota
	lineOpCopyRow
	lineOpAdvancePC
	lineOpAdvanceLine
	lineOpSetFile
	lineOpSetColumn
	lineOpNegateStmt
	lineOpSetBasicBlock
	lineOpConstAddPC
	lineOpFixedAdvancePC

	lineExtOpEndSequence = 1
	lineExtOpSetAddress  = 2
)

// runProgram executes the program and stores a row whenever the file or the line changes.
func (p *lineProgram) runProgram() error {
	c, t := p.c, p.table
	start := lineRow{file: 1, line: 1}
	row, first := start, len(t.rows)
	for c.At < len(c.Data) {
		if err := p.data.spendWork(1); err != nil {
			return err
		}
		opcode := c.Uint(1)
		switch {
		case opcode >= p.opcodeBase:
			adjusted := opcode - p.opcodeBase
			row.addr += adjusted / p.lineRange * p.minLength
			row.line += uint32(p.lineBase + int64(adjusted%p.lineRange))
			p.appendRow(row, first)
		case opcode == lineOpExtended:
			body := elffile.Cursor{Data: c.Take(c.Uleb())}
			switch body.Uint(1) {
			case lineExtOpEndSequence:
				p.endSequence(row.addr, first)
				row, first = start, len(t.rows)
			case lineExtOpSetAddress:
				row.addr = body.Uint(min(8, len(body.Data)-body.At))
			}
		case opcode == lineOpCopyRow:
			p.appendRow(row, first)
		case opcode == lineOpAdvancePC:
			row.addr += c.Uleb() * p.minLength
		case opcode == lineOpAdvanceLine:
			row.line += uint32(c.Sleb())
		case opcode == lineOpSetFile:
			row.file = uint32(c.Uleb())
		case opcode == lineOpConstAddPC:
			row.addr += (255 - p.opcodeBase) / p.lineRange * p.minLength
		case opcode == lineOpFixedAdvancePC:
			row.addr += c.Uint(2)
		default:
			for range p.operands[opcode-1] {
				c.Uleb()
			}
		}
		if c.Failed || len(t.rows) > maxLineTableRows {
			return errDamagedLineTable
		}
	}
	t.rows = slices.Clip(t.rows[:first])
	return nil
}

// appendRow appends a row to the sequence that starts at rows[first]. Of several rows at one
// address it keeps the last.
func (p *lineProgram) appendRow(row lineRow, first int) {
	rows := p.table.rows
	if n := len(rows); n > first {
		if rows[n-1].addr == row.addr {
			rows[n-1] = row
			return
		}
		if rows[n-1].file == row.file && rows[n-1].line == row.line {
			return
		}
	}
	p.table.rows = append(rows, row)
}

// endSequence ends the sequence that starts at rows[first]. It drops a sequence of code that the
// linker removed.
func (p *lineProgram) endSequence(end uint64, first int) {
	t := p.table
	if len(t.rows) > first {
		if r := (addressRange{t.rows[first].addr, end}); r.mayContainCode() {
			t.sequences = append(t.sequences, lineSequence{r, first, len(t.rows)})
			return
		}
	}
	t.rows = t.rows[:first]
}

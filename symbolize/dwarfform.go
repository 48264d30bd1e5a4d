package symbolize

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
)

// form is how an attribute's value is encoded: DW_FORM_* of DWARF 5, section 7.5.6, and of GNU.
type form uint16

const (
	formAddr          form = 0x01
	formBlock2        form = 0x03
	formBlock4        form = 0x04
	formData2         form = 0x05
	formData4         form = 0x06
	formData8         form = 0x07
	formString        form = 0x08
	formBlock         form = 0x09
	formBlock1        form = 0x0a
	formData1         form = 0x0b
	formFlag          form = 0x0c
	formSdata         form = 0x0d
	formStrp          form = 0x0e
	formUdata         form = 0x0f
	formRefAddr       form = 0x10
	formRef1          form = 0x11
	formRef2          form = 0x12
	formRef4          form = 0x13
	formRef8          form = 0x14
	formRefUdata      form = 0x15
	formIndirect      form = 0x16
	formSecOffset     form = 0x17
	formExprloc       form = 0x18
	formFlagPresent   form = 0x19
	formStrx          form = 0x1a
	formAddrx         form = 0x1b
	formRefSup4       form = 0x1c
	formStrpSup       form = 0x1d
	formData16        form = 0x1e
	formLineStrp      form = 0x1f
	formRefSig8       form = 0x20
	formImplicitConst form = 0x21
	formLoclistx      form = 0x22
	formRnglistx      form = 0x23
	formRefSup8       form = 0x24
	formStrx1         form = 0x25
	formStrx4         form = 0x28
	formAddrx1        form = 0x29
	formAddrx4        form = 0x2c
	formGNURefAlt     form = 0x1f20
	formGNUStrpAlt    form = 0x1f21
)

// value is an attribute's value as it stands: n is a number, an index or an offset, by the form. That of formString is the
// offset of the string itself. The zero value is none.
type value struct {
	form form
	n    uint64
}

func (v value) ok() bool { return v.form != 0 }

// encoding is what the size of a value depends on.
type encoding struct {
	version     int
	addressSize int
	offsetSize  int // 8 in 64-bit DWARF, else 4
}

// value reads one value of a form. An unknown form fails the cursor: nobody knows where the next value begins.
func (e encoding) value(c *cursor, f form, implicit int64) value {
	v := value{form: f}
	switch f {
	case formAddr:
		v.n = c.uint(e.addressSize)
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		v.n = c.uint(1)
	case formData2, formRef2, formStrx1 + 1, formAddrx1 + 1:
		v.n = c.uint(2)
	case formStrx1 + 2, formAddrx1 + 2:
		v.n = c.uint(3)
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		v.n = c.uint(4)
	case formData8, formRef8, formRefSup8, formRefSig8:
		v.n = c.uint(8)
	case formData16:
		c.take(16)
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx:
		v.n = c.uleb()
	case formSdata:
		v.n = uint64(c.sleb())
	case formImplicitConst:
		v.n = uint64(implicit)
	case formFlagPresent:
		v.n = 1
	case formStrp, formSecOffset, formLineStrp, formStrpSup, formGNURefAlt, formGNUStrpAlt:
		v.n = c.uint(e.offsetSize)
	case formRefAddr:
		v.n = c.uint(e.offsetSize)
		if e.version == 2 && e.addressSize > e.offsetSize {
			v.n |= c.uint(e.addressSize-e.offsetSize) << (8 * e.offsetSize)
		}
	case formString:
		v.n = uint64(c.at)
		c.skipText()
	case formBlock1:
		c.take(c.uint(1))
	case formBlock2:
		c.take(c.uint(2))
	case formBlock4:
		c.take(c.uint(4))
	case formBlock, formExprloc:
		c.take(c.uleb())
	case formIndirect:
		if real := form(c.uleb()); real != formIndirect {
			return e.value(c, real, 0)
		}
		c.failed = true
	default:
		c.failed = true
	}
	return v
}

// isConstant reports whether the value is a plain number.
func (v value) isConstant() bool {
	switch v.form {
	case formData1, formData2, formData4, formData8, formUdata, formSdata, formImplicitConst:
		return true
	}
	return false
}

// isAddressIndex reports whether the value counts entries of .debug_addr.
func (v value) isAddressIndex() bool {
	return v.form == formAddrx || v.form >= formAddrx1 && v.form <= formAddrx4
}

// abbrev is the shape of the DIEs (debugging information entries) that name its code.
type abbrev struct {
	tag      dwarf.Tag
	children bool
	fields   []field
}

type field struct {
	attr     dwarf.Attr
	form     form
	implicit int64
}

// maxFields bounds the fields of one table of abbreviations. GCC with link-time optimization gets to 20 thousand.
const maxFields = 1 << 20

var errAbbrev = errors.New("damaged abbreviations")

// readAbbrevs reads the table of abbreviations at offset: of one code, or with code 0 all.
func (d *dwarfData) readAbbrevs(offset, code uint64) (map[uint64]abbrev, error) {
	var table map[uint64]abbrev
	var bad error
	err := d.abbrev.parse(offset, func(c *cursor) {
		table, bad = make(map[uint64]abbrev), nil
		for fields := 0; !c.failed; {
			got := c.uleb()
			if got == 0 {
				return
			}
			a := abbrev{tag: dwarf.Tag(c.uleb()), children: c.uint(1) != 0}
			for !c.failed {
				f := field{attr: dwarf.Attr(c.uleb()), form: form(c.uleb())}
				if f.attr == 0 && f.form == 0 {
					break
				}
				if f.form == formImplicitConst {
					f.implicit = c.sleb()
				}
				if fields++; fields > maxFields {
					bad = errAbbrev
				} else {
					bad = d.spend(1)
				}
				if bad != nil {
					return
				}
				a.fields = append(a.fields, f)
			}
			if code == 0 || got == code {
				table[got] = a
			}
			if got == code {
				return
			}
		}
	})
	if err = cmp.Or(bad, err); err != nil {
		return nil, fmt.Errorf("read .debug_abbrev: %w", err)
	}
	return table, nil
}

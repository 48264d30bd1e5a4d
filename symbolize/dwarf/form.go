package dwarf

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"

	"github.com/gpurec/gpurec/symbolize/elffile"
)

// attributeForm is the encoding of an attribute's value: DW_FORM_* of DWARF 5, section 7.5.6, and
// of GNU.
type attributeForm uint16

const (
	formAddr          attributeForm = 0x01
	formBlock2        attributeForm = 0x03
	formBlock4        attributeForm = 0x04
	formData2         attributeForm = 0x05
	formData4         attributeForm = 0x06
	formData8         attributeForm = 0x07
	formString        attributeForm = 0x08
	formBlock         attributeForm = 0x09
	formBlock1        attributeForm = 0x0a
	formData1         attributeForm = 0x0b
	formFlag          attributeForm = 0x0c
	formSdata         attributeForm = 0x0d
	formStrp          attributeForm = 0x0e
	formUdata         attributeForm = 0x0f
	formRefAddr       attributeForm = 0x10
	formRef1          attributeForm = 0x11
	formRef2          attributeForm = 0x12
	formRef4          attributeForm = 0x13
	formRef8          attributeForm = 0x14
	formRefUdata      attributeForm = 0x15
	formIndirect      attributeForm = 0x16
	formSecOffset     attributeForm = 0x17
	formExprloc       attributeForm = 0x18
	formFlagPresent   attributeForm = 0x19
	formStrx          attributeForm = 0x1a
	formAddrx         attributeForm = 0x1b
	formRefSup4       attributeForm = 0x1c
	formStrpSup       attributeForm = 0x1d
	formData16        attributeForm = 0x1e
	formLineStrp      attributeForm = 0x1f
	formRefSig8       attributeForm = 0x20
	formImplicitConst attributeForm = 0x21
	formLoclistx      attributeForm = 0x22
	formRnglistx      attributeForm = 0x23
	formRefSup8       attributeForm = 0x24
	formStrx1         attributeForm = 0x25
	formStrx4         attributeForm = 0x28
	formAddrx1        attributeForm = 0x29
	formAddrx4        attributeForm = 0x2c
	formGNURefAlt     attributeForm = 0x1f20
	formGNUStrpAlt    attributeForm = 0x1f21
)

// attributeValue is an attribute's value before references are resolved. n is a number, an index or
// an offset, depending on the form. For formString, n is the offset of the string. The zero value
// means that the attribute is missing.
type attributeValue struct {
	form attributeForm
	n    uint64
}

// isPresent reports whether the attribute is present.
func (v attributeValue) isPresent() bool { return v.form != 0 }

// unitEncoding has the properties of a unit that determine the sizes of values.
type unitEncoding struct {
	version     int
	addressSize int
	offsetSize  int // size of offsets: 8 in 64-bit DWARF, otherwise 4
}

// readValue reads one value with a form. implicit is the value of formImplicitConst. An unknown
// form sets c.Failed, because the start of the next value is unknown then.
func (e unitEncoding) readValue(c *elffile.Cursor, f attributeForm, implicit int64) attributeValue {
	v := attributeValue{form: f}
	switch f {
	case formAddr:
		v.n = c.Uint(e.addressSize)
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		v.n = c.Uint(1)
	case formData2, formRef2, formStrx1 + 1, formAddrx1 + 1:
		v.n = c.Uint(2)
	case formStrx1 + 2, formAddrx1 + 2:
		v.n = c.Uint(3)
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		v.n = c.Uint(4)
	case formData8, formRef8, formRefSup8, formRefSig8:
		v.n = c.Uint(8)
	case formData16:
		c.Take(16)
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx:
		v.n = c.Uleb()
	case formSdata:
		v.n = uint64(c.Sleb())
	case formImplicitConst:
		v.n = uint64(implicit)
	case formFlagPresent:
		v.n = 1
	case formStrp, formSecOffset, formLineStrp, formStrpSup, formGNURefAlt, formGNUStrpAlt:
		v.n = c.Uint(e.offsetSize)
	case formRefAddr:
		v.n = c.Uint(e.offsetSize)
		if e.version == 2 && e.addressSize > e.offsetSize {
			v.n |= c.Uint(e.addressSize-e.offsetSize) << (8 * e.offsetSize)
		}
	case formString:
		v.n = uint64(c.At)
		c.SkipText()
	case formBlock1:
		c.Take(c.Uint(1))
	case formBlock2:
		c.Take(c.Uint(2))
	case formBlock4:
		c.Take(c.Uint(4))
	case formBlock, formExprloc:
		c.Take(c.Uleb())
	case formIndirect:
		if real := attributeForm(c.Uleb()); real != formIndirect {
			return e.readValue(c, real, 0)
		}
		c.Failed = true
	default:
		c.Failed = true
	}
	return v
}

// isConstant reports whether the value is a plain number.
func (v attributeValue) isConstant() bool {
	switch v.form {
	case formData1, formData2, formData4, formData8, formUdata, formSdata, formImplicitConst:
		return true
	}
	return false
}

// isAddressIndex reports whether the value is an index into .debug_addr.
func (v attributeValue) isAddressIndex() bool {
	return v.form == formAddrx || v.form >= formAddrx1 && v.form <= formAddrx4
}

// abbrev is an abbreviation: the layout of DIEs (debugging information entries) that have its code.
type abbrev struct {
	tag      dwarf.Tag
	children bool
	fields   []abbrevField
}

// abbrevField is one attribute in an abbreviation. implicit is the value of formImplicitConst.
type abbrevField struct {
	attr     dwarf.Attr
	form     attributeForm
	implicit int64
}

// maxAbbrevFields bounds the fields of one abbreviation table. GCC with link-time optimization
// writes 20,000.
const maxAbbrevFields = 1 << 20

// errDamagedAbbrevs is the error for an abbreviation table with too many fields.
var errDamagedAbbrevs = errors.New("damaged abbreviations")

// readAbbrevTable reads the abbreviation table at offset. If code is not 0, it reads only the
// abbreviation with that code.
func (d *Data) readAbbrevTable(offset, code uint64) (map[uint64]abbrev, error) {
	var table map[uint64]abbrev
	var bad error
	err := d.abbrev.Parse(offset, func(c *elffile.Cursor) {
		table, bad = make(map[uint64]abbrev), nil
		for fields := 0; !c.Failed; {
			got := c.Uleb()
			if got == 0 {
				return
			}
			a := abbrev{tag: dwarf.Tag(c.Uleb()), children: c.Uint(1) != 0}
			for !c.Failed {
				f := abbrevField{attr: dwarf.Attr(c.Uleb()), form: attributeForm(c.Uleb())}
				if f.attr == 0 && f.form == 0 {
					break
				}
				if f.form == formImplicitConst {
					f.implicit = c.Sleb()
				}
				if fields++; fields > maxAbbrevFields {
					bad = errDamagedAbbrevs
				} else {
					bad = d.spendWork(1)
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

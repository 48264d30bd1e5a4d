package rows

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/gpurec/gpurec/format"
)

// cellColumn holds the values of one column of a row group. Texts are encoded once for each distinct
// value.
type cellColumn struct {
	kind    columnKind
	key     string // of JSON, with a colon
	int64s  []int64
	int32s  []int32
	floats  []float64
	index   []int32  // textColumn: row → texts
	texts   [][]byte // encoded
	isBlank []bool   // texts: whether the value is empty
	stacks  map[int32][]byte
}

// loadColumn reads a column of a row group.
func (w *rowWriter) loadColumn(g *format.Group, c column, kind format.Strings) cellColumn {
	cells := cellColumn{kind: c.kind, key: strconv.Quote(c.name) + ":"}
	switch c.kind {
	case int64Column:
		cells.int64s = g.Int64(c.name, nil)
	case timeColumn:
		cells.int64s = g.Int64("start_ns", nil)
	case int32Column:
		cells.int32s = g.Int32(c.name, nil)
	case floatColumn:
		cells.floats = g.Float64(c.name, nil)
	case stackColumn:
		if w.stacks != nil {
			cells.stacks, cells.int32s = w.stacks, g.Int32("stack_id", nil)
			break
		}
		cells.setTexts(g.Strings(c.name), w.opt.Format)
	case textColumn:
		if c.name == "kind" {
			cells.setTexts(kind, w.opt.Format)
		} else {
			cells.setTexts(g.Strings(c.name), w.opt.Format)
		}
	}
	return cells
}

func (c *cellColumn) setTexts(s format.Strings, f Format) {
	c.index = s.Index
	for _, text := range s.Dict {
		c.texts, c.isBlank = append(c.texts, f.appendText(nil, text)), append(c.isBlank, text == "")
	}
}

// isEmpty reports whether the value of row i is 0 or empty.
func (c *cellColumn) isEmpty(i int) bool {
	switch {
	case c.index != nil:
		return c.isBlank[c.index[i]]
	case c.stacks != nil:
		return len(c.stacks[c.int32s[i]]) == 0
	case c.int64s != nil:
		return c.int64s[i] == 0
	case c.int32s != nil:
		return c.int32s[i] == 0
	}
	return c.floats[i] == 0
}

// appendCell appends the value of row i.
func (c *cellColumn) appendCell(b []byte, i int, f Format) []byte {
	switch {
	case c.index != nil:
		return append(b, c.texts[c.index[i]]...)
	case c.stacks != nil:
		if text, ok := c.stacks[c.int32s[i]]; ok {
			return append(b, text...)
		}
		return f.appendText(b, "")
	case c.kind == timeColumn:
		return f.appendTime(b, c.int64s[i])
	case c.int64s != nil:
		return strconv.AppendInt(b, c.int64s[i], 10)
	case c.int32s != nil:
		return strconv.AppendInt(b, int64(c.int32s[i]), 10)
	}
	return f.appendFloat(b, c.floats[i])
}

// appendTime appends a time (Unix ns) in ISO 8601. 0 is no time.
func (f Format) appendTime(b []byte, ns int64) []byte {
	if ns == 0 {
		return f.appendText(b, "")
	}
	const layout = "2006-01-02T15:04:05.000000000Z"
	if f == JSONL {
		return append(time.Unix(0, ns).UTC().AppendFormat(append(b, '"'), layout), '"')
	}
	return time.Unix(0, ns).UTC().AppendFormat(b, layout)
}

// appendFloat appends a number. Values that are no numbers are empty in CSV, and null in JSON.
func (f Format) appendFloat(b []byte, v float64) []byte {
	switch {
	case !math.IsNaN(v) && !math.IsInf(v, 0):
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	case f == JSONL:
		return append(b, "null"...)
	}
	return b
}

// appendText appends a text of any bytes. Invalid UTF-8 becomes U+FFFD.
func (f Format) appendText(b []byte, s string) []byte {
	s = strings.ToValidUTF8(s, "\ufffd")
	if f == JSONL {
		return appendJSONText(b, s)
	}
	// A spreadsheet evaluates such text as a formula.
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		s = "'" + s
	}
	if !strings.ContainsAny(s, "\",\r\n") && strings.TrimSpace(s) == s {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}

// appendJSONText appends a JSON string that controls no terminal.
func appendJSONText(b []byte, s string) []byte {
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case unicode.IsPrint(c):
			b = append(b, string(c)...)
		default:
			for _, unit := range utf16.Encode([]rune{c}) {
				b = fmt.Appendf(b, `\u%04x`, unit)
			}
		}
	}
	return append(b, '"')
}

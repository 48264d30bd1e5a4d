package format

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
)

// WriteText writes the recording as text: the metadata, then one line per row, in file order. A
// line has every nonzero column as name=value. Strings with spaces or unprintable characters are
// quoted as in Go, so names from a hostile process cannot control the terminal.
func (r *Recording) WriteText(out io.Writer) error {
	w := bufio.NewWriter(out)
	meta, err := json.MarshalIndent(r.Meta, "# ", "  ")
	if err != nil {
		return err
	}
	fmt.Fprintf(
		w,
		"# gpurec recording, schema %d.%d, complete: %s\n# %s\n",
		SchemaMajor,
		SchemaMinor,
		appendQuotedText(nil, string(r.Meta.Complete)),
		escapeUnprintableJSON(meta),
	)
	line := newRowPrinter()
	for _, g := range r.groups {
		fmt.Fprintf(w, "# row group: %s, %d rows\n", g.Class(), g.NumRows())
		if err := g.Err(); err != nil {
			return err
		}
		if err := g.eachRow(func(row *Row) error { return line.writeRow(w, row) }); err != nil {
			return fmt.Errorf("read %s: %w", g.path, err)
		}
	}
	return w.Flush()
}

// escapeUnprintableJSON escapes unprintable characters that JSON allows in strings and that a
// terminal would obey. An example is U+009B, which starts an escape sequence.
func escapeUnprintableJSON(text []byte) string {
	var b strings.Builder
	for _, c := range string(text) {
		if c == '\n' || strconv.IsPrint(c) {
			b.WriteRune(c)
			continue
		}
		for _, unit := range utf16.Encode([]rune{c}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// rowPrinter formats rows as text. names are the column names in schema order.
type rowPrinter struct {
	names []string
	buf   []byte
}

func newRowPrinter() *rowPrinter {
	t := reflect.TypeFor[Row]()
	text := new(rowPrinter)
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("parquet"), ",")
		text.names = append(text.names, name)
	}
	return text
}

// writeRow writes one row as a line, followed by one line for each frame.
func (p *rowPrinter) writeRow(w io.Writer, row *Row) error {
	b := appendQuotedText(p.buf[:0], row.Kind)
	v := reflect.ValueOf(row).Elem()
	for i := 1; i < v.NumField(); i++ { // field 0 is the kind, which is already written
		f := v.Field(i)
		if f.IsZero() || p.names[i] == "frames" || p.names[i] == "class" { // the row group's line has the class
			continue
		}
		b = append(b, ' ')
		b = append(b, p.names[i]...)
		b = append(b, '=')
		switch {
		case f.CanInt() && isAddressColumn(p.names[i]):
			b = strconv.AppendInt(append(b, "0x"...), f.Int(), 16)
		case f.CanInt():
			b = strconv.AppendInt(b, f.Int(), 10)
		case f.CanFloat():
			b = strconv.AppendFloat(b, f.Float(), 'g', -1, 64)
		default:
			b = appendQuotedText(b, f.String())
		}
	}
	b = append(b, '\n')
	for i := range row.Frames {
		b = row.Frames[i].appendText(b, i)
	}
	p.buf = b
	_, err := w.Write(b)
	return err
}

func (f *Frame) appendText(b []byte, depth int) []byte {
	b = fmt.Appendf(b, "  #%d ", depth)
	b = appendQuotedText(b, f.Func)
	if f.File != "" {
		b = append(b, ' ')
		b = appendQuotedText(b, f.File+":"+strconv.Itoa(int(f.Line)))
	}
	b = append(b, ' ')
	b = appendQuotedText(b, f.Module)
	b = fmt.Appendf(b, "+0x%x ", f.Addr)
	b = appendQuotedText(b, f.Type)
	if f.SelfClass != "" {
		b = appendQuotedText(append(b, " self="...), f.SelfClass)
	}
	return append(b, '\n')
}

// isAddressColumn reports whether a column holds addresses or handles, which are printed in
// hexadecimal.
func isAddressColumn(column string) bool {
	switch column {
	case "ptr", "src_ptr", "function", "context", "stream":
		return true
	}
	return false
}

// appendQuotedText appends s, quoted as in Go if it is empty or has spaces, quotes or unprintable
// characters.
func appendQuotedText(b []byte, s string) []byte {
	for _, c := range s {
		if c <= ' ' || c == '"' || c == '\\' || c == '\ufffd' || !strconv.IsPrint(c) {
			return strconv.AppendQuote(b, s)
		}
	}
	if s == "" {
		return append(b, `""`...)
	}
	return append(b, s...)
}

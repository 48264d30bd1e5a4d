package render

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/report"
)

// jsonObject is a JSON object that keeps the order of its keys.
type jsonObject []report.Fact

func (o *jsonObject) addField(key string, value any) {
	*o = append(*o, report.Fact{Column: report.Column{Key: key}, Value: value})
}

// addTable adds the rows of a table under its name, and under its former name.
func (o *jsonObject) addTable(t *report.Table) {
	rows := newRowObjects(t)
	for _, name := range []string{t.Name, t.OldName} {
		if name == "" {
			continue
		}
		o.addField(name, rows)
		if t.OmittedRows > 0 {
			o.addField(name+"_left_out", t.OmittedRows)
		}
	}
}

// MarshalJSON encodes the object with its keys in order. A former key follows its key, with the same value.
func (o jsonObject) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if err := writeField(&b, f.Key, f.Value); err != nil {
			return nil, err
		}
		if f.OldKey == "" {
			continue
		}
		b.WriteByte(',')
		if err := writeField(&b, f.OldKey, f.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// writeField writes a key and a value as JSON.
func writeField(b *bytes.Buffer, key string, value any) error {
	name, err := json.Marshal(key)
	if err != nil {
		return err
	}
	b.Write(name)
	b.WriteByte(':')
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false) // C++ names are full of < and >
	return enc.Encode(value)
}

// writeJSON writes the report as one JSON object: schema_version, command, window, facts, a list
// for each table, totals, notes and quality.
func writeJSON(w *bufio.Writer, r *report.Report) error {
	var o jsonObject
	o.addField("schema_version", report.SchemaVersion)
	o.addField("command", r.Command)
	o.addField(
		"window",
		jsonObject{
			{Column: report.Column{Key: "from_ns"}, Value: r.Window.FromNs},
			{Column: report.Column{Key: "to_ns"}, Value: r.Window.ToNs},
			{Column: report.Column{Key: "dur_ns"}, Value: r.Window.DurNs()},
		},
	)
	if len(r.Facts) > 0 {
		o.addField("facts", jsonObject(r.Facts))
	}
	for i := range r.Tables {
		o.addTable(&r.Tables[i])
	}
	if len(r.Totals) > 0 {
		o.addField("totals", jsonObject(r.Totals))
	}
	notes := append([]string{}, r.Notes...)
	if r.NoMatch != nil {
		notes = append(notes, r.NoMatch.Error())
	}
	o.addField("notes", notes)
	if r.Before != nil {
		o.addField("quality_before", newQualityObject(r.Before))
	}
	o.addField("quality", newQualityObject(&r.Quality))
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(o); err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return nil
}

// newRowObjects returns the rows of a table as JSON objects, with frames and evidence where a row
// has them.
func newRowObjects(t *report.Table) []jsonObject {
	list := make([]jsonObject, 0, len(t.Rows))
	for _, r := range t.Rows {
		var o jsonObject
		for i, c := range t.Columns {
			o = append(o, report.Fact{Column: c, Value: replaceNilList(r.Cells[i])})
		}
		if r.Stack != nil {
			frames := report.VisibleFrames(r.Stack)
			o.addField("frames", frames)
			o.addField("frames_hidden", r.StackFrames-len(frames))
		}
		if r.Evidence != "" {
			o.addField("evidence", r.Evidence)
		}
		list = append(list, o)
	}
	return list
}

// replaceNilList returns an empty list for a nil list of strings, so that JSON has [] instead of
// null.
func replaceNilList(v any) any {
	if list, ok := v.([]string); ok && list == nil {
		return []string{}
	}
	return v
}

// newQualityObject returns the quality of a recording as a JSON object.
func newQualityObject(q *report.Quality) jsonObject {
	o := jsonObject(q.Facts())
	var shares jsonObject
	for _, s := range q.StackShares {
		shares.addField(s.Status, s.Pct)
	}
	o.addField("stacks_pct", shares)
	o.addField("gpu_timing", q.GPUTiming)
	return o
}

// writeCSV writes the rows of the main table. If the report has several tables, not counting those
// with Table.Secondary, it writes facts and totals as lines of key and value instead. It does not
// write the quality of the recording.
func writeCSV(w *bufio.Writer, r *report.Report, opt Options) error {
	out := csv.NewWriter(w)
	head := []string{"key", "value"}
	var lines [][]string
	tables := slices.DeleteFunc(slices.Clone(r.Tables), func(t report.Table) bool { return t.Secondary })
	if len(tables) == 1 {
		head, lines = formatCSVLines(&tables[0])
	} else {
		for _, f := range append(append([]report.Fact{}, r.Facts...), r.Totals...) {
			lines = append(lines, []string{f.Key, formatCSVCell(f.Value)})
		}
	}
	if !opt.NoHeader {
		lines = append([][]string{head}, lines...)
	}
	if err := out.WriteAll(lines); err != nil {
		return err
	}
	return out.Error()
}

// formatCSVLines returns the keys of a table's columns and the cells of its rows. If any row has a
// stack, the last column has its function names, separated by semicolons.
func formatCSVLines(t *report.Table) (head []string, lines [][]string) {
	stacks := false
	for _, r := range t.Rows {
		stacks = stacks || r.Stack != nil
	}
	for _, c := range t.Columns {
		head = append(head, c.Key)
	}
	if stacks {
		head = append(head, "frames")
	}
	for _, r := range t.Rows {
		var line []string
		for _, cell := range r.Cells {
			line = append(line, formatCSVCell(cell))
		}
		if stacks {
			var frames []string
			for _, f := range report.VisibleFrames(r.Stack) {
				frames = append(frames, f.Func)
			}
			line = append(line, strings.Join(frames, ";"))
		}
		lines = append(lines, line)
	}
	return head, lines
}

// formatCSVCell returns a value without units; nil is empty. Text that a spreadsheet would evaluate
// as a formula gets a single quote in front.
func formatCSVCell(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if !utf8.ValidString(v) {
			v = strings.ToValidUTF8(v, "\ufffd")
		}
		if v != "" && strings.ContainsRune("=+-@\t\r", rune(v[0])) {
			return "'" + v
		}
		return v
	case []string:
		return strings.Join(v, "; ")
	case []int64, []float64:
		return strings.ReplaceAll(strings.Trim(fmt.Sprint(v), "[]"), " ", "; ")
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

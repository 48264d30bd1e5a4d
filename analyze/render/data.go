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

// object is a JSON object whose keys keep their order.
type object []report.Fact

func (o *object) add(key string, value any) {
	*o = append(*o, report.Fact{Column: report.Column{Key: key}, Value: value})
}

// MarshalJSON writes the keys in order.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(f.Key)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false) // C++ names are full of < and >
		if err := enc.Encode(f.Value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// renderJSON writes one object: schema_version, command, window, facts, a list per
// table, totals, notes and quality.
func renderJSON(w *bufio.Writer, r *report.Report) error {
	var o object
	o.add("schema_version", report.SchemaVersion)
	o.add("command", r.Command)
	o.add(
		"window",
		object{
			{Column: report.Column{Key: "from_ns"}, Value: r.Window.FromNs},
			{Column: report.Column{Key: "to_ns"}, Value: r.Window.ToNs},
			{Column: report.Column{Key: "dur_ns"}, Value: r.Window.DurNs()},
		},
	)
	if len(r.Facts) > 0 {
		o.add("facts", object(r.Facts))
	}
	for i := range r.Tables {
		o.add(r.Tables[i].Name, objects(&r.Tables[i]))
		if more := r.Tables[i].OmittedRows; more > 0 {
			o.add(r.Tables[i].Name+"_left_out", more)
		}
	}
	if len(r.Totals) > 0 {
		o.add("totals", object(r.Totals))
	}
	notes := append([]string{}, r.Notes...)
	if r.NoMatch != nil {
		notes = append(notes, r.NoMatch.Error())
	}
	o.add("notes", notes)
	if r.Before != nil {
		o.add("quality_before", ofQualityObject(r.Before))
	}
	o.add("quality", ofQualityObject(&r.Quality))
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(o); err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	return nil
}

func objects(t *report.Table) []object {
	list := make([]object, 0, len(t.Rows))
	for _, r := range t.Rows {
		var o object
		for i, c := range t.Columns {
			o.add(c.Key, validText(r.Cells[i]))
		}
		if r.Stack != nil {
			frames := report.VisibleFrames(r.Stack)
			o.add("frames", frames)
			o.add("frames_hidden", r.StackFrames-len(frames))
		}
		if r.Evidence != "" {
			o.add("evidence", r.Evidence)
		}
		list = append(list, o)
	}
	return list
}

// validText keeps lists from being null.
func validText(v any) any {
	if list, ok := v.([]string); ok && list == nil {
		return []string{}
	}
	return v
}

func ofQualityObject(q *report.Quality) object {
	o := object(q.Facts())
	var shares object
	for _, s := range q.StackShares {
		shares.add(s.Status, s.Pct)
	}
	o.add("stacks_pct", shares)
	o.add("gpu_timing", q.GPUTiming)
	return o
}

// renderCSV writes the rows of a report with one table that is no aside, and for one
// with several its facts and totals as key,value; quality is for the caller to show.
func renderCSV(w *bufio.Writer, r *report.Report, opt Options) error {
	out := csv.NewWriter(w)
	head := []string{"key", "value"}
	var lines [][]string
	tables := slices.DeleteFunc(slices.Clone(r.Tables), func(t report.Table) bool { return t.Secondary })
	if len(tables) == 1 {
		head, lines = csvLines(&tables[0])
	} else {
		for _, f := range append(append([]report.Fact{}, r.Facts...), r.Totals...) {
			lines = append(lines, []string{f.Key, csvCell(f.Value)})
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

func csvLines(t *report.Table) (head []string, lines [][]string) {
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
			line = append(line, csvCell(cell))
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

// csvCell writes a value as a program reads it; unknown is empty. Text that a
// spreadsheet would run as a formula gets a quote in front.
func csvCell(v any) string {
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

package render

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// renderText writes the report as aligned text: facts, tables, the stacks of the
// rows under their table, totals and the quality line.
func renderText(w *bufio.Writer, r *report.Report, opt Options) {
	for i := range r.Tables {
		if t := &r.Tables[i]; t.AboveFacts && OfTableShown(t) {
			fmt.Fprintf(w, "%s\n", t.Title)
			textTable(w, t, opt)
			fmt.Fprintln(w)
		}
	}
	pad := 0
	for _, f := range r.Facts {
		if Shown(&f) {
			pad = max(pad, len(f.Title))
		}
	}
	for _, f := range r.Facts {
		text := f.Unit.Text(f.Value)
		switch {
		case Shown(&f) && slices.Contains(r.Sentences, f.Key):
			fmt.Fprint(w, Wrapped(text, fmt.Sprintf("%-*s  ", pad, f.Title), strings.Repeat(" ", pad+2), opt.Width))
		case Shown(&f):
			fmt.Fprintf(w, "%-*s  %s\n", pad, f.Title, units.Cut(text, opt.Width-pad-2))
		}
	}
	for i := range r.Tables {
		t := &r.Tables[i]
		if t.AboveFacts || len(r.Tables) > 1 && !OfTableShown(t) {
			continue
		}
		if len(r.Tables) > 1 {
			fmt.Fprintf(w, "\n%s\n", t.Title)
		}
		textTable(w, t, opt)
		if t.OmittedRows > 0 {
			fmt.Fprintf(w, "… and %s\n", units.Plural(int64(t.OmittedRows), "more row"))
		}
		textStacks(w, t, opt)
	}
	if len(r.Facts)+len(r.Tables) > 0 {
		fmt.Fprintln(w)
	}
	if totals := FactLine(r.Totals); totals != "" {
		fmt.Fprint(w, Wrapped("total: "+totals, "", "  ", opt.Width))
	}
	if r.Before != nil {
		fmt.Fprint(w, Wrapped("quality before: "+r.Before.String(), "", "  ", opt.Width))
	}
	fmt.Fprint(w, Wrapped("quality: "+r.Quality.String(), "", "  ", opt.Width))
}

// Wrapped breaks a sentence between words into lines of a width, the first after one
// indent, the others after another; 0 and less do not break.
func Wrapped(text, first, indent string, width int) string {
	var b strings.Builder
	b.WriteString(first)
	column := len(first)
	for i, word := range strings.Split(text, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case width > 0 && column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteByte('\n')
	return b.String()
}

// Shown reports whether text shows the fact: what is unknown or empty it leaves out,
// and what has no title is for programs.
func Shown(f *report.Fact) bool { return f.Title != "" && f.Value != nil && f.Value != "" }

// OfTableShown reports whether text has anything to show of a table.
func OfTableShown(t *report.Table) bool {
	return len(t.Rows) > 0 && slices.ContainsFunc(t.Columns, func(c report.Column) bool { return c.Title != "" })
}

// FactLine joins facts into a line; zeros other than the first are left out.
func FactLine(facts []report.Fact) string {
	var parts []string
	for i, f := range facts {
		if f.Value == nil || i > 0 && f.Value == int64(0) {
			continue
		}
		switch f.Unit {
		case report.UnitCount:
			parts = append(parts, f.Unit.Text(f.Value)+" "+f.Title)
		default:
			parts = append(parts, f.Title+" "+f.Unit.Text(f.Value))
		}
	}
	return strings.Join(parts, ", ")
}

// ofTableCells returns the titled columns' headings, texts, which are numbers and which are
// painted, without the columns in hidden.
func ofTableCells(t *report.Table, hidden ...string) (head []string, rows [][]string, right, painted []bool) {
	for i, c := range t.Columns {
		if c.Title == "" || slices.Contains(hidden, c.Key) {
			continue
		}
		head = append(head, c.Title)
		right = append(right, c.Unit != report.UnitText)
		painted = append(painted, isPainted(c.Key))
		for k, r := range t.Rows {
			if len(rows) <= k {
				rows = append(rows, nil)
			}
			rows[k] = append(rows[k], c.Unit.Text(r.Cells[i]))
		}
	}
	return head, rows, right, painted
}

func textTable(w *bufio.Writer, t *report.Table, opt Options) {
	head, rows, right, painted := ofTableCells(t)
	widths := columnWidths(head, rows, opt.NoHeader)
	for hidden := 1; hidden <= len(t.HideFirst) && !fits(widths, right, opt.Width); hidden++ {
		head, rows, right, painted = ofTableCells(t, t.HideFirst[:hidden]...)
		widths = columnWidths(head, rows, opt.NoHeader)
	}
	fitWidths(widths, right, opt.Width)
	CutCells(rows, widths)
	if !opt.Color {
		painted = nil
	}
	if !opt.NoHeader {
		textLine(w, head, widths, right, nil)
	}
	for _, row := range rows {
		textLine(w, row, widths, right, painted)
	}
}

// textLine writes the cells of a row; painted may be nil.
func textLine(w *bufio.Writer, cells []string, widths []int, right, painted []bool) {
	var b strings.Builder
	for i, cell := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		cell = units.Cut(cell, widths[i])
		gap := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
		if painted != nil && painted[i] {
			cell = paint(cell, cell)
		}
		if right[i] {
			b.WriteString(gap + cell)
		} else {
			b.WriteString(cell + gap)
		}
	}
	fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
}

func columnWidths(head []string, rows [][]string, noHeader bool) []int {
	widths := make([]int, len(head))
	for i, h := range head {
		if !noHeader {
			widths[i] = utf8.RuneCountInString(h)
		}
		for _, row := range rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	return widths
}

// fits reports whether lines fit the width when columns of text are narrowed to
// what can still be read.
func fits(widths []int, right []bool, width int) bool {
	const readable = 24
	line := 2 * (len(widths) - 1)
	for i, w := range widths {
		if !right[i] {
			w = min(w, readable)
		}
		line += w
	}
	return width <= 0 || line <= width
}

// minTextWidth is the least that a column of text is narrowed to.
const minTextWidth = 12

// fitWidths narrows columns of text, the widest first, until a line fits the width.
func fitWidths(widths []int, right []bool, width int) {
	if width <= 0 {
		return
	}
	over := 2*(len(widths)-1) - width
	for _, w := range widths {
		over += w
	}
	for over > 0 {
		widest, second := -1, minTextWidth
		for i, w := range widths {
			switch {
			case right[i] || w <= minTextWidth:
			case widest < 0 || w > widths[widest]:
				if widest >= 0 {
					second = max(second, widths[widest])
				}
				widest = i
			default:
				second = max(second, w)
			}
		}
		if widest < 0 {
			return
		}
		less := max(1, min(over, widths[widest]-second))
		widths[widest] -= less
		over -= less
	}
}

// CutMiddle is cut, but leaves out the middle.
func CutMiddle(text string, width int) string {
	runes := []rune(text)
	if width <= 1 || len(runes) <= width {
		return units.Cut(text, width)
	}
	head := width / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(width-1-head):])
}

// CutCells cuts the cells of a table to the widths of its columns. What would look
// the same, and is not, loses its middle instead of its end.
func CutCells(rows [][]string, widths []int) {
	for column, width := range widths {
		same := make(map[string]string) // cut → whole
		differ := make(map[string]bool)
		for _, row := range rows {
			short := units.Cut(row[column], width)
			if whole, ok := same[short]; ok && whole != row[column] {
				differ[short] = true
			}
			same[short] = row[column]
		}
		for _, row := range rows {
			short := units.Cut(row[column], width)
			if differ[short] {
				short = CutMiddle(row[column], width)
			}
			row[column] = short
		}
	}
}

func textStacks(w *bufio.Writer, t *report.Table, opt Options) {
	label, width := len(t.Columns)-1, opt.Width
	for i, r := range t.Rows {
		if r.Brief || len(r.Stack) == 0 && r.Evidence == "" {
			continue
		}
		said := ofColumnSaid(&t.Columns[0], r.Cells[0])
		heading := units.Cut(fmt.Sprintf("%d. %s: %s", i+1, said, units.OneLine(fmt.Sprint(r.Cells[label]))), width)
		if opt.Color && isPainted(t.Columns[0].Key) {
			heading = strings.Replace(heading, said, paint(said, said), 1)
		}
		fmt.Fprintf(w, "\n%s\n", heading)
		if r.Evidence != "" {
			fmt.Fprint(w, Wrapped(units.OneLine(r.Evidence), "   ", "   ", width))
		}
		for _, f := range r.Stack {
			fmt.Fprintf(w, "%s\n", units.Cut("     "+units.OneLine(Text(&f)), width))
		}
	}
}

// ofColumnSaid is a value as part of a sentence.
func ofColumnSaid(c *report.Column, v any) string {
	if n, ok := v.(int64); ok && c.Unit == report.UnitCount {
		return units.Plural(n, units.SingularOf(strings.ToLower(c.Title)))
	}
	return c.Unit.Text(v)
}

// Text is the frame as one line: the function and where it is.
func Text(f *report.Frame) string {
	switch {
	case f.Folded > 0 && f.Libraries == nil:
		return "… " + units.Plural(int64(f.Folded), "more frame")
	case f.Folded > 0:
		return fmt.Sprintf("… %s of %s", units.Plural(int64(f.Folded), "frame"), units.Enumerated(f.Libraries))
	case f.File != "" && f.Line > 0:
		return fmt.Sprintf("%s (%s:%d)", f.Func, f.File, f.Line)
	case f.File != "":
		return fmt.Sprintf("%s (%s)", f.Func, f.File)
	case f.Module != "" && !strings.Contains(f.Func, "+0x"):
		return fmt.Sprintf("%s [%s]", f.Func, symbolize.ModuleName(f.Module))
	}
	return f.Func
}

// renderMarkdown writes the report's tables as Markdown.
func renderMarkdown(w *bufio.Writer, r *report.Report, opt Options) {
	for _, f := range r.Facts {
		if Shown(&f) {
			fmt.Fprintf(w, "- %s: %s\n", f.Title, markdownCell(f.Unit.Text(f.Value)))
		}
	}
	for i := range r.Tables {
		t := &r.Tables[i]
		if len(r.Tables) > 1 && !OfTableShown(t) {
			continue
		}
		if !opt.NoHeader {
			fmt.Fprintf(w, "\n### %s\n\n", t.Title)
		}
		head, rows, right, _ := ofTableCells(t)
		markdownRow(w, head)
		rule := make([]string, len(head))
		for i := range rule {
			rule[i] = "---"
			if right[i] {
				rule[i] = "--:"
			}
		}
		fmt.Fprintf(w, "|%s|\n", strings.Join(rule, "|"))
		for _, row := range rows {
			markdownRow(w, row)
		}
		if t.OmittedRows > 0 {
			fmt.Fprintf(w, "\n… and %s\n", units.Plural(int64(t.OmittedRows), "more row"))
		}
	}
	if totals := FactLine(r.Totals); totals != "" {
		fmt.Fprintf(w, "\ntotal: %s\n", markdownCell(totals))
	}
	if r.Before != nil {
		fmt.Fprintf(w, "\nquality before: %s\n", markdownCell(r.Before.String()))
	}
	fmt.Fprintf(w, "\nquality: %s\n", markdownCell(r.Quality.String()))
}

func markdownRow(w *bufio.Writer, cells []string) {
	for _, c := range cells {
		fmt.Fprintf(w, "| %s ", markdownCell(c))
	}
	fmt.Fprintln(w, "|")
}

// markdownEscapes are the characters that Markdown, or HTML inside of it, acts on.
var markdownEscapes = strings.NewReplacer(
	`\`,
	`\\`,
	"|",
	`\|`,
	"<",
	"&lt;",
	">",
	"&gt;",
	"&",
	"&amp;",
	"*",
	`\*`,
	"_",
	`\_`,
	"`",
	"\\`",
	"[",
	`\[`,
)

func markdownCell(s string) string { return markdownEscapes.Replace(s) }

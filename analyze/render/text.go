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

// writeText writes the report as aligned text: facts, tables, stacks below their table, totals, and
// the quality of the recording. Tables with AboveFacts come before the facts.
func writeText(w *bufio.Writer, r *report.Report, opt Options) {
	for i := range r.Tables {
		if t := r.Tables[i].WithoutFolded(); t.AboveFacts && IsTableShown(t) {
			fmt.Fprintf(w, "%s\n", t.Title)
			writeTextTable(w, t, opt)
			writeStacks(w, t, opt)
			fmt.Fprintln(w)
		}
	}
	pad := 0
	for _, f := range r.Facts {
		if IsFactShown(&f) {
			pad = max(pad, len(f.Title))
		}
	}
	for _, f := range r.Facts {
		text := f.Unit.FormatValue(f.Value)
		switch {
		case IsFactShown(&f) && slices.Contains(r.Sentences, f.Key):
			fmt.Fprint(w, WrapText(text, fmt.Sprintf("%-*s  ", pad, f.Title), strings.Repeat(" ", pad+2), opt.Width))
		case IsFactShown(&f):
			fmt.Fprintf(w, "%-*s  %s\n", pad, f.Title, units.ShortenText(text, opt.Width-pad-2))
		}
	}
	for i := range r.Tables {
		t := r.Tables[i].WithoutFolded()
		if t.AboveFacts || len(r.Tables) > 1 && !IsTableShown(t) {
			continue
		}
		if len(r.Tables) > 1 {
			fmt.Fprintf(w, "\n%s\n", t.Title)
		}
		writeTextTable(w, t, opt)
		if t.OmittedRows > 0 {
			fmt.Fprintf(w, "… and %s\n", units.CountWithNoun(int64(t.OmittedRows), "more row"))
		}
		writeStacks(w, t, opt)
	}
	if len(r.Facts)+len(r.Tables) > 0 {
		fmt.Fprintln(w)
	}
	if totals := JoinFacts(r.Totals); totals != "" {
		fmt.Fprint(w, WrapText("total: "+totals, "", "  ", opt.Width))
	}
	if r.Before != nil {
		fmt.Fprint(w, WrapText("quality before: "+r.Before.String(), "", "  ", opt.Width))
	}
	fmt.Fprint(w, WrapText("quality: "+r.Quality.String(), "", "  ", opt.Width))
}

// WrapText breaks text between words into lines of at most width characters, and ends it with a
// newline. The first line begins with first, the others with indent. It does not break lines if
// width is 0 or negative.
func WrapText(text, first, indent string, width int) string {
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

// IsFactShown reports whether text output shows a fact. It leaves out facts without a value, and
// facts without a title, which are for programs.
func IsFactShown(f *report.Fact) bool { return f.Title != "" && f.Value != nil && f.Value != "" }

// IsTableShown reports whether text output shows a table: it has a row, and a column with a title.
func IsTableShown(t *report.Table) bool {
	return len(t.Rows) > 0 && slices.ContainsFunc(t.Columns, func(c report.Column) bool { return c.Title != "" })
}

// JoinFacts joins facts into one line. It leaves out facts without a value, and all but the first
// fact if they are 0.
func JoinFacts(facts []report.Fact) string {
	var parts []string
	for i, f := range facts {
		if f.Value == nil || i > 0 && f.Value == int64(0) {
			continue
		}
		n, ok := f.Value.(int64)
		switch {
		case f.Unit == report.UnitCount && ok:
			parts = append(parts, units.CountWithTitle(n, f.Title))
		case f.Unit == report.UnitCount:
			parts = append(parts, f.Unit.FormatValue(f.Value)+" "+f.Title)
		default:
			parts = append(parts, f.Title+" "+f.Unit.FormatValue(f.Value))
		}
	}
	return strings.Join(parts, ", ")
}

// formatVisibleCells returns the headings and cells of the columns that have a title and whose key
// is not in hidden. For each of these columns, right is true if it is aligned to the right, and
// coloured if it has verdicts.
func formatVisibleCells(t *report.Table, hidden ...string) (head []string, rows [][]string, right, coloured []bool) {
	for i, c := range t.Columns {
		if c.Title == "" || slices.Contains(hidden, c.Key) {
			continue
		}
		head = append(head, c.Title)
		right = append(right, c.Unit != report.UnitText)
		coloured = append(coloured, isColumnColoured(c.Key))
		for k, r := range t.Rows {
			if len(rows) <= k {
				rows = append(rows, nil)
			}
			rows[k] = append(rows[k], c.Unit.FormatValue(r.Cells[i]))
		}
	}
	return head, rows, right, coloured
}

// writeTextTable writes a table as aligned text. If the table is too wide, it leaves out the
// columns of Table.HideFirst, one after the other, and then cuts text.
func writeTextTable(w *bufio.Writer, t *report.Table, opt Options) {
	head, rows, right, coloured := formatVisibleCells(t)
	widths := measureColumnWidths(head, rows, opt.NoHeader)
	for hidden := 1; hidden <= len(t.HideFirst) && !fitsTerminalWidth(widths, right, opt.Width); hidden++ {
		head, rows, right, coloured = formatVisibleCells(t, t.HideFirst[:hidden]...)
		widths = measureColumnWidths(head, rows, opt.NoHeader)
	}
	narrowTextColumns(widths, right, opt.Width)
	CutTableCells(rows, widths)
	if !opt.Color {
		coloured = nil
	}
	if !opt.NoHeader {
		writeTextRow(w, head, widths, right, nil)
	}
	for _, row := range rows {
		writeTextRow(w, row, widths, right, coloured)
	}
}

// writeTextRow writes the cells of one row, each with the width of its column. coloured marks the
// columns with verdicts; nil means no colours.
func writeTextRow(w *bufio.Writer, cells []string, widths []int, right, coloured []bool) {
	var b strings.Builder
	for i, cell := range cells {
		if i > 0 {
			b.WriteString("  ")
		}
		cell = units.ShortenText(cell, widths[i])
		gap := strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell)))
		if coloured != nil && coloured[i] {
			cell = colourVerdict(cell, cell)
		}
		if right[i] {
			b.WriteString(gap + cell)
		} else {
			b.WriteString(cell + gap)
		}
	}
	fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
}

// measureColumnWidths returns the width of each column in characters, before cutting.
func measureColumnWidths(head []string, rows [][]string, noHeader bool) []int {
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

// fitsTerminalWidth reports whether lines fit the terminal if text columns are narrowed to a
// readable width.
func fitsTerminalWidth(widths []int, right []bool, width int) bool {
	const readable = 24 // characters
	line := 2 * (len(widths) - 1)
	for i, w := range widths {
		if !right[i] {
			w = min(w, readable)
		}
		line += w
	}
	return width <= 0 || line <= width
}

// minTextColumnWidth is the smallest width of a narrowed text column, in characters.
const minTextColumnWidth = 12

// narrowTextColumns narrows the text columns in widths, the widest first, until a line fits the
// terminal.
func narrowTextColumns(widths []int, right []bool, width int) {
	if width <= 0 {
		return
	}
	over := 2*(len(widths)-1) - width
	for _, w := range widths {
		over += w
	}
	for over > 0 {
		widest, second := -1, minTextColumnWidth
		for i, w := range widths {
			switch {
			case right[i] || w <= minTextColumnWidth:
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

// CutTextMiddle cuts text to width characters. It replaces the middle of the text by an ellipsis.
func CutTextMiddle(text string, width int) string {
	runes := []rune(text)
	if width <= 1 || len(runes) <= width {
		return units.ShortenText(text, width)
	}
	head := width / 2
	return string(runes[:head]) + "…" + string(runes[len(runes)-(width-1-head):])
}

// CutTableCells cuts the cells in rows to the widths of their columns. It cuts the end of a cell,
// or the middle if different cells of the column have the same beginning.
func CutTableCells(rows [][]string, widths []int) {
	for column, width := range widths {
		same := make(map[string]string) // uncut text by cut text
		differ := make(map[string]bool) // cut texts that represent several uncut ones
		for _, row := range rows {
			short := units.ShortenText(row[column], width)
			if whole, ok := same[short]; ok && whole != row[column] {
				differ[short] = true
			}
			same[short] = row[column]
		}
		for _, row := range rows {
			short := units.ShortenText(row[column], width)
			if differ[short] {
				short = CutTextMiddle(row[column], width)
			}
			row[column] = short
		}
	}
}

// writeStacks writes, for each row with a stack or evidence, a heading, the evidence and the
// frames.
func writeStacks(w *bufio.Writer, t *report.Table, opt Options) {
	width := opt.Width
	for i, r := range t.Rows {
		if r.Brief || len(r.Stack) == 0 && r.Evidence == "" {
			continue
		}
		first := formatHeadingValue(&t.Columns[0], r.Cells[0])
		heading := units.ShortenText(
			fmt.Sprintf("%d. %s: %s", i+1, first, units.SanitizeText(fmt.Sprint(headingLabel(t, &r)))),
			width,
		)
		if opt.Color && isColumnColoured(t.Columns[0].Key) {
			heading = strings.Replace(heading, first, colourVerdict(first, first), 1)
		}
		fmt.Fprintf(w, "\n%s\n", heading)
		if r.Evidence != "" {
			fmt.Fprint(w, WrapText(units.SanitizeText(r.Evidence), "   ", "   ", width))
		}
		for _, f := range r.Stack {
			fmt.Fprintf(w, "%s\n", units.ShortenText("     "+units.SanitizeText(FormatFrame(&f)), width))
		}
	}
}

// headingLabel returns what names a row in its heading: the last column, or if it is absent, the first text behind the
// first column.
func headingLabel(t *report.Table, r *report.Row) any {
	last := len(t.Columns) - 1
	for i := 1; r.Cells[last] == nil && i < last; i++ {
		if text, ok := r.Cells[i].(string); ok && text != "" && t.Columns[i].Title != "" {
			return text
		}
	}
	return r.Cells[last]
}

// formatHeadingValue returns the value of a row's first column for the heading of its stack: "3
// blocks", or only the value if it is not a count.
func formatHeadingValue(c *report.Column, v any) string {
	if n, ok := v.(int64); ok && c.Unit == report.UnitCount {
		return units.CountWithNoun(n, units.SingularOf(strings.ToLower(c.Title)))
	}
	return c.Unit.FormatValue(v)
}

// FormatFrame returns a frame as one line: the function with its source line or module. For folded
// frames it returns their number.
func FormatFrame(f *report.Frame) string {
	switch {
	case f.Folded > 0 && f.Libraries == nil:
		return "… " + units.CountWithNoun(int64(f.Folded), "more frame")
	case f.Folded > 0:
		count := units.CountWithNoun(int64(f.Folded), "frame")
		return fmt.Sprintf("… %s of %s", count, units.JoinWithAnd(f.Libraries))
	case f.File != "" && f.Line > 0:
		return fmt.Sprintf("%s (%s:%d)", f.Func, f.File, f.Line)
	case f.File != "":
		return fmt.Sprintf("%s (%s)", f.Func, f.File)
	case f.Module != "" && !strings.Contains(f.Func, "+0x"):
		return fmt.Sprintf("%s [%s]", f.Func, symbolize.ModuleName(f.Module))
	}
	return f.Func
}

// writeMarkdown writes the facts, tables, totals and quality of the report as Markdown.
func writeMarkdown(w *bufio.Writer, r *report.Report, opt Options) {
	for _, f := range r.Facts {
		if IsFactShown(&f) {
			fmt.Fprintf(w, "- %s: %s\n", f.Title, escapeMarkdownCell(f.Unit.FormatValue(f.Value)))
		}
	}
	for i := range r.Tables {
		t := r.Tables[i].WithoutFolded()
		if len(r.Tables) > 1 && !IsTableShown(t) {
			continue
		}
		if !opt.NoHeader {
			fmt.Fprintf(w, "\n### %s\n\n", t.Title)
		}
		head, rows, right, _ := formatVisibleCells(t)
		writeMarkdownRow(w, head)
		rule := make([]string, len(head))
		for i := range rule {
			rule[i] = "---"
			if right[i] {
				rule[i] = "--:"
			}
		}
		fmt.Fprintf(w, "|%s|\n", strings.Join(rule, "|"))
		for _, row := range rows {
			writeMarkdownRow(w, row)
		}
		if t.OmittedRows > 0 {
			fmt.Fprintf(w, "\n… and %s\n", units.CountWithNoun(int64(t.OmittedRows), "more row"))
		}
	}
	if totals := JoinFacts(r.Totals); totals != "" {
		fmt.Fprintf(w, "\ntotal: %s\n", escapeMarkdownCell(totals))
	}
	if r.Before != nil {
		fmt.Fprintf(w, "\nquality before: %s\n", escapeMarkdownCell(r.Before.String()))
	}
	fmt.Fprintf(w, "\nquality: %s\n", escapeMarkdownCell(r.Quality.String()))
}

func writeMarkdownRow(w *bufio.Writer, cells []string) {
	for _, c := range cells {
		fmt.Fprintf(w, "| %s ", escapeMarkdownCell(c))
	}
	fmt.Fprintln(w, "|")
}

// markdownEscaper escapes the characters with a meaning in Markdown or in HTML.
var markdownEscaper = strings.NewReplacer(
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

func escapeMarkdownCell(s string) string { return markdownEscaper.Replace(s) }

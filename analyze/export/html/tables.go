package html

import (
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/units"
)

// The types with names in View are the data of the template web/report.html.

// factView is a title with a value.
type factView struct{ Title, Value string }

// tableView is a table of the page.
type tableView struct {
	ID    string // ID of the HTML element of the table
	Title string
	Head  []columnHeadingView
	Rows  []rowView
	More  string // "7 more rows" if the page leaves out rows, else ""
}

// columnHeadingView is the heading of a table column in the page.
type columnHeadingView struct {
	Title  string
	About  string // description of the column, shown as tooltip
	Number bool   // the column has numbers and is aligned to the right
}

// rowView is a row of a table. Evidence and Frames are in a part of the label cell that unfolds.
type rowView struct {
	Cells    []cellView
	Evidence string
	Frames   []string
}

// cellView is a cell of a table.
type cellView struct {
	Text   string
	Sort   string // number without unit to sort by; "" if it is unknown or the cell has text
	Level  string // CSS class of a verdict: problem, notice, info; "" for other cells
	Number bool
	Label  bool // the last column, which has the evidence and the stack of the row
}

// newTableView returns the view of a table: the columns with a title, and as many rows as fit into
// maxTableBytes. command is the name of the table's report.
func newTableView(t *report.Table, command string) tableView {
	h := tableView{ID: command + "-" + t.Name, Title: t.Title}
	label := -1
	for i, c := range t.Columns {
		if c.Title != "" {
			h.Head = append(
				h.Head,
				columnHeadingView{trimColumnTitle(c.Title), c.About, c.Unit&^report.UnitSigned != report.UnitText},
			)
			label = i
		}
	}
	cells, stacks := 0, 0
	for i := range t.Rows {
		row := newRowView(t, &t.Rows[i], label)
		if cells += row.estimateBytes(); cells > maxTableBytes {
			break
		}
		for _, f := range row.Frames {
			stacks += len(f)
		}
		if stacks > maxStackBytes {
			row.Frames = nil
		}
		h.Rows = append(h.Rows, row)
	}
	if more := t.OmittedRows + len(t.Rows) - len(h.Rows); more > 0 {
		h.More = units.CountWithNoun(int64(more), "more row")
	}
	return h
}

// maxTableBytes and maxStackBytes limit the size of the rows of a table and of all their stacks.
// Only tables with very long C++ names reach these limits.
const (
	maxTableBytes = 60_000
	maxStackBytes = 60_000
)

// estimateBytes estimates the size of a row in the page, without its stack.
func (r *rowView) estimateBytes() int {
	sum := len(r.Evidence)
	for i := range r.Cells {
		sum += len(r.Cells[i].Text) + len(r.Cells[i].Sort) + 30
	}
	return sum
}

// trimColumnTitle returns the title of a column without the legend of sparkline characters, which
// text output appends after three spaces.
func trimColumnTitle(title string) string {
	head, _, _ := strings.Cut(title, "   ")
	return head
}

// newRowView returns the view of a row. label is the index of the column that has the row's stack.
func newRowView(t *report.Table, r *report.Row, label int) rowView {
	row := rowView{Evidence: render.CutTextMiddle(units.SanitizeText(r.Evidence), 2*maxTextChars)}
	for i, c := range t.Columns {
		if c.Title == "" {
			continue
		}
		cell := cellView{
			Text:   shortenText(c.Unit.FormatValue(r.Cells[i])),
			Number: c.Unit&^report.UnitSigned != report.UnitText,
			Label:  i == label,
		}
		if cell.Label && cell.Text == "" {
			cell.Text = "(no name)"
		}
		if cell.Number {
			cell.Sort = formatSortKey(r.Cells[i])
		} else if c.Key == "verdict" || c.Key == "level" || c.Key == "class" {
			cell.Level = severityOfVerdict(cell.Text)
		}
		row.Cells = append(row.Cells, cell)
	}
	for _, f := range r.Stack {
		row.Frames = append(row.Frames, shortenText(render.FormatFrame(&f)))
	}
	return row
}

// formatSortKey returns the number of a cell, by which the page sorts rows; "" if the value is
// unknown.
func formatSortKey(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', 8, 64)
	case catalog.MetricValue:
		return strconv.FormatFloat(v.Value, 'g', 8, 64)
	}
	return ""
}

// severityOfVerdict returns the severity of a verdict as a CSS class: problem, notice or info. It
// returns "" for other texts.
func severityOfVerdict(verdict string) string {
	switch verdict {
	case "problem", "growing", "hanging", "asynchronous", "capacity", "fragmentation":
		return "problem"
	case "notice",
		"exit leak",
		"retained",
		"fragmented",
		"waiting",
		"polling",
		"idle",
		"memory",
		"cached",
		"limit",
		"other process":
		return "notice"
	case "info", "startup", "churn", "alive", "ended", "fine", "addresses", "call", "question", "unknown":
		return "info"
	}
	return ""
}

// joinNames returns the names of the first maxListedNames keys, and the number of the others.
func joinNames[V any](all map[int32]V, name func(int32) string) string {
	keys := slices.Sorted(maps.Keys(all))
	var list []string
	for _, k := range keys[:min(maxListedNames, len(keys))] {
		list = append(list, units.SanitizeText(name(k)))
	}
	if more := len(keys) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %s more", units.FormatCount(int64(more))))
	}
	return strings.Join(list, ", ")
}

// drawAddressMap returns an address map as an SVG picture. The style sheet of the page sets its
// colours.
func drawAddressMap(m *frag.AddressMap, startNs int64) (template.HTML, error) {
	var b strings.Builder
	if err := frag.WriteMapsSVG(&b, []frag.AddressMap{*m}, startNs); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil // WriteMapsSVG escapes the text that comes from the recording
}

// findCellValue returns the value of a row in the column with a key; nil if there is no such
// column.
func findCellValue(t *report.Table, r *report.Row, key string) any {
	i := slices.IndexFunc(t.Columns, func(c report.Column) bool { return c.Key == key })
	if i < 0 {
		return nil
	}
	return r.Cells[i]
}

// formatCell returns the cell of a row in the column with a key as text with its unit; "" if the
// value is unknown.
func formatCell(t *report.Table, r *report.Row, key string) string {
	i := slices.IndexFunc(t.Columns, func(c report.Column) bool { return c.Key == key })
	if i < 0 || r.Cells[i] == nil {
		return ""
	}
	return t.Columns[i].Unit.FormatValue(r.Cells[i])
}

// findTable returns the table of a report with a name. If there is no such table, or r is nil, it
// returns an empty table.
func findTable(r *report.Report, name string) *report.Table {
	if r != nil {
		for i := range r.Tables {
			if r.Tables[i].Name == name {
				return &r.Tables[i]
			}
		}
	}
	return new(report.Table)
}

// newPeakTable returns a table of the call sites that held most memory at the peak of each device.
// The page shows it if the browser does not run scripts.
func (s *momentScan) newPeakTable(opt *query.Options) report.Table {
	table := report.Table{Name: "peak", Title: "largest holders of memory at the peak", Columns: memoryPeakColumns}
	for _, device := range slices.Sorted(maps.Keys(s.devices)) {
		peak := s.devices[device].peak.copyState()
		where := s.t.SharedDeviceLabel(device)
		if device == hostDeviceKey {
			where = "host"
		}
		for i, h := range peak.holders {
			if i == maxMomentHolders {
				break
			}
			about := &s.about[h.group]
			row := table.Add(report.Values{
				"bytes":       h.bytes,
				"share_pct":   units.Percent(h.bytes, peak.total),
				"blocks":      h.blocks,
				"at_ns":       peak.atNs - s.t.RecordingWindow().FromNs,
				"device":      where,
				"memory_kind": about.memory,
				"site":        about.site,
			})
			row.StackID, row.ViaStackID = about.stack.Stack, about.stack.Via
		}
	}
	table.Sort("bytes")
	frames.FillRowStacks(s.t, &table, opt)
	return table
}

var memoryPeakColumns = []report.Column{
	{
		Key: "bytes", Title: "HELD", Unit: report.UnitBytes,
		About: "live bytes of the call site at the memory peak of the device or of pinned host memory",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "HELD as share of all live bytes of the device, or of pinned host memory, at the peak",
	},
	{
		Key: "blocks", Title: "COUNT", Unit: report.UnitCount,
		About: "live allocations of the call site at the peak; for PyTorch the number of tensors' blocks",
	},
	{
		Key: "at_ns", Title: "AT", Unit: report.UnitNs,
		About: "time of the peak, from the start of the recording",
	},
	{
		Key: "device", Title: "WHERE", Unit: report.UnitText,
		About: "CUDA device that has the memory, or host",
	},
	{
		Key: "memory_kind", Title: "KIND", Unit: report.UnitText,
		About: "kind of memory. torch is a block of PyTorch's allocator, with its requested size",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "allocation site: the innermost frame of the program's own code",
	},
}

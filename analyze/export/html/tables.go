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

// htmlFact is a named value as text.
type htmlFact struct{ Title, Value string }

// htmlTable is a table as the template wants it.
type htmlTable struct {
	ID, Title string
	Head      []htmlHead
	Rows      []htmlRow
	More      string // how many rows are left out, in words
}

type htmlHead struct {
	Title, About string
	Number       bool
}

type htmlRow struct {
	Cells    []htmlCell
	Evidence string
	Frames   []string
}

// htmlCell is a cell; Sort is the bare number of one that is a number, Level colours verdicts,
// Label cells carry what else is told of the row.
type htmlCell struct {
	Text, Sort, Level string
	Number, Label     bool
}

// html turns a table into what the page shows of it: the columns that text shows.
func html(t *report.Table, command string) htmlTable {
	h := htmlTable{ID: command + "-" + t.Name, Title: t.Title}
	label := -1
	for i, c := range t.Columns {
		if c.Title != "" {
			h.Head = append(
				h.Head,
				htmlHead{columnTitle(c.Title), c.About, c.Unit&^report.UnitSigned != report.UnitText},
			)
			label = i
		}
	}
	cells, stacks := 0, 0
	for i := range t.Rows {
		row := ofTableHTMLRow(t, &t.Rows[i], label)
		if cells += row.bytes(); cells > mostTableBytes {
			break
		}
		for _, f := range row.Frames {
			stacks += len(f)
		}
		if stacks > mostStackBytes {
			row.Frames = nil
		}
		h.Rows = append(h.Rows, row)
	}
	if more := t.OmittedRows + len(t.Rows) - len(h.Rows); more > 0 {
		h.More = units.Plural(int64(more), "more row")
	}
	return h
}

// mostTableBytes bounds the rows of a table, mostStackBytes the stacks under them: only names as
// long as C++ makes them come near.
const (
	mostTableBytes = 60_000
	mostStackBytes = 60_000
)

// bytes is about how much of the page a row takes, without its stack.
func (r *htmlRow) bytes() int {
	sum := len(r.Evidence)
	for i := range r.Cells {
		sum += len(r.Cells[i].Text) + len(r.Cells[i].Sort) + 30
	}
	return sum
}

// columnTitle is the heading without the key to characters that only text has.
func columnTitle(title string) string {
	head, _, _ := strings.Cut(title, "   ")
	return head
}

func ofTableHTMLRow(t *report.Table, r *report.Row, label int) htmlRow {
	row := htmlRow{Evidence: render.CutMiddle(units.OneLine(r.Evidence), 2*longestText)}
	for i, c := range t.Columns {
		if c.Title == "" {
			continue
		}
		cell := htmlCell{
			Text:   shortText(c.Unit.Text(r.Cells[i])),
			Number: c.Unit&^report.UnitSigned != report.UnitText,
			Label:  i == label,
		}
		if cell.Label && cell.Text == "" {
			cell.Text = "(no name)"
		}
		if cell.Number {
			cell.Sort = sortKey(r.Cells[i])
		} else if c.Key == "verdict" || c.Key == "level" || c.Key == "class" {
			cell.Level = verdictColour(cell.Text)
		}
		row.Cells = append(row.Cells, cell)
	}
	for _, f := range r.Stack {
		row.Frames = append(row.Frames, shortText(render.Text(&f)))
	}
	return row
}

// sortKey is what a cell is sorted by: its number, nothing if that is not known.
func sortKey(v any) string {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', 8, 64)
	case catalog.Measured:
		return strconv.FormatFloat(v.Value, 'g', 8, 64)
	}
	return ""
}

// verdictColour is how bad a verdict is, for its colour.
func verdictColour(verdict string) string {
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
	return "" // no verdict in one word
}

// shortList names the first few of many.
func shortList[V any](all map[int32]V, name func(int32) string) string {
	keys := slices.Sorted(maps.Keys(all))
	var list []string
	for _, k := range keys[:min(mostNamed, len(keys))] {
		list = append(list, units.OneLine(name(k)))
	}
	if more := len(keys) - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %s more", units.Count(int64(more))))
	}
	return strings.Join(list, ", ")
}

// svg is an address map as a picture that takes its colours from the page's style.
func svg(m *frag.AddressMap, startNs int64) (template.HTML, error) {
	var b strings.Builder
	if err := frag.WriteMaps(&b, []frag.AddressMap{*m}, startNs); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil // WriteMaps escapes the one text that is not its own
}

// ofTableCell returns the value of a row in the column of a key.
func ofTableCell(t *report.Table, r *report.Row, key string) any {
	i := slices.IndexFunc(t.Columns, func(c report.Column) bool { return c.Key == key })
	if i < 0 {
		return nil
	}
	return r.Cells[i]
}

// ofTableText is a cell as text, "" if it is not known.
func ofTableText(t *report.Table, r *report.Row, key string) string {
	i := slices.IndexFunc(t.Columns, func(c report.Column) bool { return c.Key == key })
	if i < 0 || r.Cells[i] == nil {
		return ""
	}
	return t.Columns[i].Unit.Text(r.Cells[i])
}

// ofReportTable returns a table of a report by its name; one without rows if there is none.
func ofReportTable(r *report.Report, name string) *report.Table {
	if r != nil {
		for i := range r.Tables {
			if r.Tables[i].Name == name {
				return &r.Tables[i]
			}
		}
	}
	return new(report.Table)
}

// peaks returns the table of the holders of memory at the peak of each device, for readers without
// scripts.
func (s *momentScan) peaks(opt *query.Options) report.Table {
	table := report.Table{Name: "peak", Title: "who held memory at the peak", Columns: peakColumns}
	for _, device := range slices.Sorted(maps.Keys(s.devices)) {
		peak := s.devices[device].peak.moment()
		where := s.t.SharedLabel(device)
		if device == hostMemory {
			where = "host"
		}
		for i, h := range peak.holders {
			if i == mostHolders {
				break
			}
			about := &s.about[h.group]
			row := table.Add(report.Values{
				"bytes":       h.bytes,
				"share_pct":   units.Percent(h.bytes, peak.total),
				"blocks":      h.blocks,
				"at_ns":       peak.atNs - s.t.Recording().FromNs,
				"device":      where,
				"memory_kind": about.memory,
				"site":        about.site,
			})
			row.StackID = about.stack
		}
	}
	table.Sort("bytes")
	frames.Fill(s.t, &table, opt)
	return table
}

var peakColumns = []report.Column{
	{
		Key: "bytes", Title: "HELD", Unit: report.UnitBytes,
		About: "bytes live when most was live on that device, or of the host's pinned memory",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of HELD in all that was live there then",
	},
	{Key: "blocks", Title: "COUNT", Unit: report.UnitCount, About: "allocations behind HELD; of PyTorch tensors"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "when that was, from the recording's start"},
	{Key: "device", Title: "WHERE", Unit: report.UnitText, About: "CUDA device of the process, or the host"},
	{
		Key: "memory_kind", Title: "KIND", Unit: report.UnitText,
		About: "kind of memory; torch: a block of PyTorch's allocator, with the bytes that were asked for",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the allocation",
	},
}

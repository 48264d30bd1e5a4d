package diff

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

var factColumns = []report.Column{
	{Key: "report", Title: "report", Unit: report.UnitText, About: "the report that is compared"},
	{Key: "before", Title: "before", Unit: report.UnitText, About: "first recording, and the length of its window"},
	{Key: "after", Title: "after", Unit: report.UnitText, About: "second recording, and the length of its window"},
	{
		Key: "per", Title: "per", Unit: report.UnitText,
		About: "by what counts, bytes and times are divided, and how many that are; shares, rates, extremes and " +
			"moments are not divided",
	},
	{
		Key: "not_compared", Title: "not compared", Unit: report.UnitText,
		About: "tables whose rows have no counterpart: they are events, or are about one recording",
	},
}

var totalColumns = []report.Column{
	{
		Key: "changed", Title: "changed rows", Unit: report.UnitCount,
		About: "rows that both recordings have and that are different in some number or word",
	},
	{Key: "new", Title: "new", Unit: report.UnitCount, About: "rows that only the second recording has"},
	{Key: "gone", Title: "gone", Unit: report.UnitCount, About: "rows that only the first recording has"},
	{Key: "same", Title: "same", Unit: report.UnitCount, About: "rows that are equal"},
}

// nameColumns explain the keys that a comparison makes of those of a report.
var nameColumns = []report.Column{
	{Key: "row", Title: "ROW", Unit: report.UnitText, About: "new, gone, changed or same"},
	{
		Key: "<column>_before", Title: "BEFORE", Unit: report.UnitText,
		About: "the column in the first recording; of the columns with numbers the first that is not left out for " +
			"width is shown",
	},
	{Key: "<column>_after", Title: "AFTER", Unit: report.UnitText, About: "in the second recording"},
	{
		Key: "<column>_change", Title: "CHANGE", Unit: report.UnitText,
		About: "after - before; a new row was 0 before, a gone one is 0 after, and what is unknown has no change. " +
			"+/- columns are the changes of further columns",
	},
	{
		Key: "<column>_change_pct", Title: "CHANGE%", Unit: report.UnitPercent,
		About: "that, in percent of before; absent where before is 0",
	},
	{
		Key: "<column>_per_second_..., _per_step_...", Title: "", Unit: report.UnitText,
		About: "the same with --per; _by_second_... where the report itself has a column <column>_per_second",
	},
	{
		Key: "<total>_before, _after, _change, _change_pct", Title: "", Unit: report.UnitText,
		About: "the same of facts and totals of the report; for --fail-on",
	},
	{
		Key: "new_<verdict>", Title: "", Unit: report.UnitCount,
		About: "rows with this verdict in the second recording that had another one, or were not there, in the " +
			"first: new_growing",
	},
	{
		Key: "gone_<verdict>", Title: "", Unit: report.UnitCount,
		About: "rows with this verdict in the first recording that have another one, or are not there, in the second",
	},
}

var setupColumns = []report.Column{
	{
		Key: "what", Title: "DIFFERENT", Unit: report.UnitText,
		About: "what the two recordings do not have in common; numbers can differ because of it",
	},
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "in the first recording"},
	{Key: "after", Title: "AFTER", Unit: report.UnitText, About: "in the second recording"},
}

// Names of the tables that are not comparisons of tables.
const (
	setupName   = "setup"
	numbersName = "numbers"
)

// setupTable has a row per difference between the setups of the recordings.
func setupTable(before, after *Side) report.Table {
	table := report.Table{Name: setupName, Title: "different about the recordings", Columns: setupColumns, Secondary: true}
	for _, name := range setupNames {
		if was, is := before.setup[name], after.setup[name]; was != is {
			table.Add(report.Values{"what": name, "before": units.Known(was), "after": units.Known(is)})
		}
	}
	return table
}

var numberColumns = []report.Column{
	{Key: "name", Title: "NUMBER", Unit: report.UnitText, About: "fact or total of the report"},
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "in the first recording"},
	{Key: "after", Title: "AFTER", Unit: report.UnitText, About: "in the second"},
	{Key: "change", Title: "CHANGE", Unit: report.UnitText, About: "after - before"},
	{Key: "change_pct", Title: "CHANGE%", Unit: signed(report.UnitPercent), About: "in percent of before"},
}

// numberTable has a row per fact or total that changed. It notes the comparison of all of them in
// d.numbers.
func (d *differ) numberTable() report.Table {
	table := report.Table{Name: numbersName, Title: "numbers", Columns: numberColumns, Secondary: true}
	a := slices.Concat(d.before.report.Totals, d.before.report.Facts)
	seen := make(map[string]bool)
	b := slices.Concat(d.after.report.Totals, d.after.report.Facts)
	isTaken := func(key string) bool {
		return slices.ContainsFunc(b, func(f report.Fact) bool { return f.Key == key })
	}
	for _, f := range b {
		at := slices.IndexFunc(a, func(o report.Fact) bool { return o.Key == f.Key })
		if at < 0 || !isMeasure(&f.Column) || seen[f.Key] {
			continue
		}
		seen[f.Key] = true
		m := d.measure(f.Column, isTaken)
		was, is := d.before.value(&f.Column, a[at].Value), d.after.value(&f.Column, f.Value)
		values := m.values(was, is, was, is)
		d.numbers = append(d.numbers, report.Facts(m.columns(false), values)...)
		if n, ok := report.AsNumber(values[m.change]); f.Title != "" && ok && n != 0 {
			table.Add(report.Values{
				"name":       cmp.Or(f.Title, f.Key),
				"before":     f.Unit.Text(was),
				"after":      f.Unit.Text(is),
				"change":     signed(f.Unit).Text(values[m.change]),
				"change_pct": values[m.changePct],
			})
		}
	}
	return table
}

// columns returns the columns that compare a measure. They have titles if it is the main one.
func (m *measure) columns(isMain bool) []report.Column {
	before := report.Column{Key: m.before, Unit: m.Unit, About: "before: " + m.About}
	after := report.Column{Key: m.after, Unit: m.Unit, About: "after: " + m.About}
	change := report.Column{Key: m.change, Unit: signed(m.Unit), About: "after - before"}
	pct := report.Column{Key: m.changePct, Unit: signed(report.UnitPercent), About: "change in percent of before"}
	if isMain {
		before.Title, after.Title, change.Title, pct.Title = m.Title+" BEFORE", "AFTER", "CHANGE", "CHANGE%"
	}
	return []report.Column{before, after, change, pct}
}

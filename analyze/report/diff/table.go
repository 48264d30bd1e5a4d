package diff

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the facts of the comparison.
var factColumns = []report.Column{
	{Key: "report", Title: "report", Unit: report.UnitText, About: "name of the compared report"},
	{Key: "before", Title: "before", Unit: report.UnitText, About: "first recording, and the length of its window"},
	{Key: "after", Title: "after", Unit: report.UnitText, About: "second recording, and the length of its window"},
	{
		Key: "per", Title: "per", Unit: report.UnitText,
		About: "divisor of counts, bytes and times, and its value in both recordings; shares, rates, extremes and " +
			"points in time are not divided",
	},
	{
		Key: "not_compared", Title: "not compared", Unit: report.UnitText,
		About: "tables that are not compared: their rows are events, or describe one recording",
	},
}

// totalColumns are the totals of the comparison.
var totalColumns = []report.Column{
	{
		Key: "changed", Title: "changed rows", Unit: report.UnitCount,
		About: "rows that both recordings have, with a different number or text",
	},
	{Key: "new", Title: "new", Unit: report.UnitCount, About: "rows that only the second recording has"},
	{Key: "gone", Title: "gone", Unit: report.UnitCount, About: "rows that only the first recording has"},
	{Key: "same", Title: "same", Unit: report.UnitCount, About: "rows that are equal in both recordings"},
}

// derivedKeyColumns explain how a comparison derives column keys from those of a report.
var derivedKeyColumns = []report.Column{
	rowChangeColumn,
	{
		Key: "<column>_before", Title: "BEFORE", Unit: report.UnitText,
		About: "value of the column in the first recording; text output shows the main column of numbers",
	},
	{
		Key: "<column>_after", Title: "AFTER", Unit: report.UnitText,
		About: "value of the column in the second recording",
	},
	{
		Key: "<column>_change", Title: "CHANGE", Unit: report.UnitText,
		About: "after - before. A new row counts as 0 before, a gone row as 0 after; unknown values have no change. " +
			"+/- columns are changes of further columns",
	},
	{
		Key: "<column>_change_pct", Title: "CHANGE%", Unit: report.UnitPercent,
		About: "change in percent of before; absent if before is 0",
	},
	{
		Key:   "<column>_change_plus_minus",
		Title: "±",
		Unit:  report.UnitText,
		About: "error of CHANGE, from the errors of both values: two standard errors, or the sum of half the " +
			"distances of " +
			"bounds. A change of at most its error is unknown",
	},
	{
		Key: "<column>_per_second_..., _per_step_...", Title: "", Unit: report.UnitText,
		About: "the same values with --per; _by_second_... if the report has its own column <column>_per_second",
	},
	{
		Key: "<total>_before, _after, _change, _change_pct", Title: "", Unit: report.UnitText,
		About: "the same values for facts and totals of the report, for --fail-on",
	},
	{
		Key: "new_<verdict>", Title: "", Unit: report.UnitCount,
		About: "rows with this verdict in the second recording that had another verdict, or did not exist, in the " +
			"first; for example new_growing",
	},
	{
		Key: "gone_<verdict>", Title: "", Unit: report.UnitCount,
		About: "rows with this verdict in the first recording that have another verdict, or do not exist, in the " +
			"second",
	},
}

// setupColumns are the columns of setupTable.
var setupColumns = []report.Column{
	{
		Key: "what", Title: "DIFFERENT", Unit: report.UnitText,
		About: "property of the machine, the software or the recording that differs; it may explain other differences",
	},
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "value of the property in the first recording"},
	{Key: "after", Title: "AFTER", Unit: report.UnitText, About: "value of the property in the second recording"},
}

// Names of the tables that do not compare tables.
const (
	setupTableName   = "setup"
	numbersTableName = "numbers"
)

// setupTable returns a table with one row per difference between the setups of the recordings.
func setupTable(before, after *Side) report.Table {
	table := report.Table{
		Name: setupTableName, Title: "differences between the recordings", Columns: setupColumns, Secondary: true,
	}
	for _, name := range setupPropertyNames {
		if was, is := before.setup[name], after.setup[name]; was != is {
			table.Add(report.Values{"what": name, "before": units.TextOrNil(was), "after": units.TextOrNil(is)})
		}
	}
	return table
}

// numberColumns are the columns of differ.numberTable.
var numberColumns = []report.Column{
	{Key: "name", Title: "NUMBER", Unit: report.UnitText, About: "name of a fact or total of the report"},
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "value in the first recording"},
	{Key: "after", Title: "AFTER", Unit: report.UnitText, About: "value in the second recording"},
	{Key: "change", Title: "CHANGE", Unit: report.UnitText, About: "after - before"},
	{Key: "change_pct", Title: "CHANGE%", Unit: signedUnit(report.UnitPercent), About: "change in percent of before"},
}

// numberTable returns a table with one row per fact or total that changed. It also stores the
// comparison of all facts and totals in d.numbers.
func (rc *reportComparer) numberTable() report.Table {
	table := report.Table{Name: numbersTableName, Title: "numbers", Columns: numberColumns, Secondary: true}
	a := slices.Concat(rc.before.report.Totals, rc.before.report.Facts)
	seen := make(map[string]bool)
	b := slices.Concat(rc.after.report.Totals, rc.after.report.Facts)
	isTaken := func(key string) bool {
		return slices.ContainsFunc(b, func(f report.Fact) bool { return f.Key == key })
	}
	for _, f := range b {
		at := slices.IndexFunc(a, func(o report.Fact) bool { return o.Key == f.Key })
		if at < 0 || !isMeasureColumn(&f.Column) || seen[f.Key] {
			continue
		}
		seen[f.Key] = true
		m := rc.newMeasure(f.Column, isTaken)
		was, is := rc.before.cellNumber(&f.Column, a[at].Value), rc.after.cellNumber(&f.Column, f.Value)
		values := m.changeValuesWithin(rc.factError(&m, a, b), was, is, was, is)
		rc.numbers = append(rc.numbers, report.NewFacts(m.changeColumns(false), values)...)
		if n, ok := report.AsNumber(values[m.change]); f.Title != "" && ok && n != 0 {
			table.Add(report.Values{
				"name":       cmp.Or(f.Title, f.Key),
				"before":     f.Unit.FormatValue(was),
				"after":      f.Unit.FormatValue(is),
				"change":     signedUnit(f.Unit).FormatValue(values[m.change]),
				"change_pct": values[m.changePct],
			})
		}
	}
	return table
}

// factError returns the error of the change of a fact, or nil if the fact has none.
func (rc *reportComparer) factError(m *comparedMeasure, a, b []report.Fact) any {
	find := func(s *Side, list []report.Fact) any {
		column := m.Column
		column.Key = errorKeyOf(m.Key)
		at := slices.IndexFunc(list, func(f report.Fact) bool { return f.Key == column.Key })
		if at < 0 {
			return nil
		}
		return s.cellNumber(&column, list[at].Value)
	}
	if m.changeError == "" {
		return nil
	}
	return joinErrors(find(rc.before, a), find(rc.after, b), false)
}

// derivedColumn returns a column whose key begins with the key of column of. It has a former key if of has one.
func derivedColumn(of *report.Column, key string, unit report.Unit, about string) report.Column {
	c := report.Column{Key: key, Unit: unit, About: about}
	if of.OldKey != "" {
		c.OldKey = of.OldKey + strings.TrimPrefix(key, of.Key)
	}
	return c
}

// changeColumns returns the columns that compare a measure. They have titles if isMain is true.
func (m *comparedMeasure) changeColumns(isMain bool) []report.Column {
	before := derivedColumn(&m.Column, m.before, m.Unit, "before: "+m.About)
	after := derivedColumn(&m.Column, m.after, m.Unit, "after: "+m.About)
	change := derivedColumn(&m.Column, m.change, signedUnit(m.Unit), "after - before")
	pct := derivedColumn(&m.Column, m.changePct, signedUnit(report.UnitPercent), "change in percent of before")
	if isMain {
		before.Title, after.Title, change.Title, pct.Title = m.Title+" BEFORE", "AFTER", "CHANGE", "CHANGE%"
	}
	if m.changeError != "" {
		within := derivedColumn(&m.Column, m.changeError, m.Unit, "error of the change. A smaller change is unknown")
		if isMain {
			within.Title = "±"
		}
		return []report.Column{before, after, change, within, pct}
	}
	return []report.Column{before, after, change, pct}
}

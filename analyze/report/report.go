package report

import (
	"github.com/gpurec/gpurec/analyze/query"
)

// SchemaVersion is the version of the JSON format of reports. It increases when a key changes its
// meaning or is removed. A new key does not increase it.
const SchemaVersion = 1

// Report is the result of one analysis, such as leaks or hang. Package render prints it as text,
// JSON, CSV or Markdown.
type Report struct {
	Command string
	Window  query.Window
	// Facts describe the recording. Totals sum up the tables.
	Facts  []Fact
	Totals []Fact
	Tables []Table
	// Sentences are the keys of facts that text output wraps instead of truncating.
	Sentences []string
	// Notes are sentences about data that the report lacks.
	Notes []string
	// NoMatch explains why no event passes the filter. It is nil if an event passes.
	NoMatch *query.NoMatchError
	Quality Quality
	// Before is the quality of the first recording of a diff. It is nil in other reports.
	Before *Quality
	// Files are files to write with the report.
	Files []OutputFile
}

// Fact is a named value. Row.Cells lists the possible types of Value.
type Fact struct {
	Column
	Value any
}

// Table is a list of rows of one kind, such as call sites or kernels.
type Table struct {
	Name    string // key in JSON
	OldName string // former Name, under which JSON has the table too; "" if there is none
	Title   string // heading in text output of a report with several tables
	Columns []Column
	Rows    []Row
	// HideFirst lists keys of columns. Text output hides these columns, in this order, until a line
	// fits the width.
	HideFirst []string
	// OmittedRows is the number of rows that --top left out.
	OmittedRows int
	// AboveFacts makes text output print the table before the facts.
	AboveFacts bool
	// Secondary marks a table that sums up another table. CSV output omits it.
	Secondary bool
	// Keys are the keys of the columns that identify a row. Package diff pairs the rows of two
	// recordings by these columns. nil means the key columns that package diff
	// assumes. An empty list means that rows are
	// events of one recording, so diff does not pair them.
	Keys []string
	// Verdicts are values of the column "verdict". A diff counts the rows that got or lost one of
	// these values.
	Verdicts []string
}

// Row is a row of a Table. Cells has one value for each column: an int64, float64, string,
// []string, bool, catalog.MetricValue, or nil for an unknown value. A time series is an []int64 or
// []float64. The Column has the unit.
type Row struct {
	Cells []any
	// Stack is the call stack that text output prints under the table, leaf first. StackFrames is
	// the number of its frames in the recording, which may be larger than len(Stack).
	Stack       []Frame
	StackFrames int
	// Evidence is a sentence with the data behind the row.
	Evidence string
	// Brief makes text output print the row without its stack and evidence.
	Brief bool
	// Folded makes text output leave the row out, because another row says the same.
	Folded bool

	StackID int32 // stack id in the recording; frames.FillRowStacks sets Stack from it
	// ViaStackID is the stack of the call for which an autograd thread works, 0: none. Stack continues with it.
	ViaStackID int32
}

// Column describes one column of a table, or one fact.
type Column struct {
	// Key is the name in JSON, CSV, --sort and --fail-on. It ends in the unit, such as _bytes or
	// _ns.
	Key string
	// OldKey is the former Key. JSON has the value under both. --sort and --fail-on accept both. It is "" if
	// there is none.
	OldKey string
	// Title is the heading in text output. Text output hides a column with an empty Title.
	Title string
	Unit  Unit
	// About defines the value. --explain prints it.
	About string
}

// HasKey reports whether key is the key of the column or its former key.
func (c *Column) HasKey(key string) bool { return key != "" && (c.Key == key || c.OldKey == key) }

// Unit is the unit of a value. Text output formats the value by it; JSON and CSV have the bare
// number.
type Unit uint8

// Units of values.
const (
	UnitText      Unit = iota
	UnitCount          // a number of things, such as calls
	UnitBytes          // bytes
	UnitBytesRate      // bytes per minute
	UnitNs             // a duration, ns
	UnitTime           // a point in time, Unix ns
	UnitPercent        // 0 to 100
	UnitRatio          // a fraction without a unit
	UnitID             // a number that identifies something, such as a process id
	UnitSeries         // values at equal time steps; text output draws them as a sparkline from 0

	// UnitSigned is a bit that is added to the unit of a difference. Text output then prints a
	// sign.
	UnitSigned Unit = 1 << 7
)

// FindNumber returns a number of the report by its key or former key, for --fail-on: a total, a fact or a number
// of the quality block. known is false if the report has no number with this key. ok is false if
// the value is nil.
func (r *Report) FindNumber(name string) (value float64, ok, known bool) {
	for _, f := range r.listNumbers() {
		if !f.HasKey(name) {
			continue
		}
		switch v := f.Value.(type) {
		case int64:
			return float64(v), true, true
		case float64:
			return v, true, true
		case bool:
			if v {
				return 1, true, true
			}
			return 0, true, true
		}
		return 0, false, true
	}
	return 0, false, false
}

// NumberNames returns the keys that Number accepts.
func (r *Report) NumberNames() []string {
	var list []string
	for _, f := range r.listNumbers() {
		list = append(list, f.Key)
	}
	return list
}

func (r *Report) listNumbers() []Fact {
	var list []Fact
	for _, facts := range [][]Fact{r.Totals, r.Facts, r.Quality.Facts()} {
		for _, f := range facts {
			if f.Unit != UnitText {
				list = append(list, f)
			}
		}
	}
	return list
}

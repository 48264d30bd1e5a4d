package report

import (
	"github.com/gpurec/gpurec/analyze/query"
)

// SchemaVersion is the version of the JSON of reports. It grows when a key changes its meaning or
// is removed, not when one is added.
const SchemaVersion = 1

// Report is the answer to one question, as values. Package render writes it as text, JSON, CSV or
// Markdown.
type Report struct {
	Command string
	Window  query.Window
	// Facts describe the recording, Totals sum up the tables.
	Facts  []Fact
	Totals []Fact
	Tables []Table
	// Sentences are the keys of facts that text breaks into lines instead of cutting them off.
	Sentences []string
	// Notes are sentences about what the report could not show.
	Notes []string
	// NoMatch explains why nothing passes the filter; nil if something does.
	NoMatch *query.NoMatch
	Quality Quality
	// Before is the quality of the first recording of a comparison; nil in other reports.
	Before *Quality
}

// Fact is a named value. Row lists the types of values.
type Fact struct {
	Column
	Value any
}

// Table is a list of things of one kind.
type Table struct {
	Name    string // key in JSON
	Title   string // heading in text, where a report has several tables
	Columns []Column
	Rows    []Row
	// Spare are the keys of columns that text leaves out, in this order, until a line fits the
	// width.
	HideFirst []string
	// More is the number of rows that --top left out.
	OmittedRows int
	// Lead tables come first: text shows them above the facts.
	AboveFacts bool
	// Aside tables sum up another table. CSV leaves them out.
	Secondary bool
	// Keys are the keys of the columns that say what a row is about: package diff pairs the rows of
	// two recordings by them. nil means the usual ones (diff.keyNames). An empty list means that
	// rows are events of one recording, without counterparts.
	Keys []string
	// Verdicts are those values of its column verdict for which a comparison counts the rows that
	// got or lost it.
	Verdicts []string
}

// Row is a row of a Table. Cells has a value for each column: an int64, float64, string, []string,
// bool or catalog.Measured, an []int64 or []float64 for a course over time, or nil if the value is
// not known. The column has the unit.
type Row struct {
	Cells []any
	// Stack is shown under the table, leaf first. StackFrames is its number of frames in the
	// recording.
	Stack       []Frame
	StackFrames int
	// Evidence explains in a sentence what the row is based on.
	Evidence string
	// Brief rows are shown in text without their stack and evidence.
	Brief bool

	StackID int32 // id of the stack in the recording, from which Stack is filled in
}

// Column describes the values of a column or fact.
type Column struct {
	// Key is the name in JSON, CSV, --sort and --fail-on. It ends in the unit.
	Key string
	// Title is the heading in text. Text does not show a column without one.
	Title string
	Unit  Unit
	// About defines the value, for --explain.
	About string
}

// Unit is the unit of a value, by which text formats it. JSON and CSV have the bare number.
type Unit uint8

// Units of values.
const (
	UnitText      Unit = iota
	UnitCount          // a number of things
	UnitBytes          // bytes
	UnitBytesRate      // bytes per minute
	UnitNs             // a duration in ns
	UnitTime           // a moment, Unix ns
	UnitPercent        // 0 to 100
	UnitRatio          // a bare fraction
	UnitID             // a number that is a name
	UnitSeries         // values at equal steps of time; text draws them from 0 to the highest

	// UnitSigned is a bit of the units of differences, which text shows with their sign.
	UnitSigned Unit = 1 << 7
)

// Number returns a number of the report by its key, for --fail-on: a total, a fact or a number of
// the quality block. known is false if the report has no such number. ok is false if its value is
// nil.
func (r *Report) Number(name string) (value float64, ok, known bool) {
	for _, f := range r.numbers() {
		if f.Key != name {
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

// NumberNames returns the keys that Number knows.
func (r *Report) NumberNames() []string {
	var list []string
	for _, f := range r.numbers() {
		list = append(list, f.Key)
	}
	return list
}

func (r *Report) numbers() []Fact {
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

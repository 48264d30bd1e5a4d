package report

import "github.com/gpurec/gpurec/analyze/query"

// SchemaVersion is the version of the JSON that reports are rendered to: it grows
// when a key changes its meaning or goes away, not when one is added.
const SchemaVersion = 1

// Report is the answer to one question, as values: what it looks like is decided by
// Render.
type Report struct {
	Command string
	Window  query.Window
	// Facts describe the recording, Totals sum up the tables.
	Facts  []Fact
	Totals []Fact
	Tables []Table
	// Sentences are the keys of facts that text breaks into lines instead of cutting them.
	Sentences []string
	// Notes are sentences about what the report could not show.
	Notes []string
	// NoMatch is set when the filter left nothing over.
	NoMatch *query.NoMatch
	Quality Quality
	// Before is the quality of the recording that Diff compares with; nil in other reports.
	Before *Quality
}

// Fact is one named value.
type Fact struct {
	Column
	Value any
}

// Table is a list of equal things.
type Table struct {
	Name    string // key in JSON
	Title   string // heading in text, where a report has several tables
	Columns []Column
	Rows    []Row
	// Spare are the keys of columns that text leaves out, in this order, where a
	// line would not fit the width.
	Spare []string
	// More is how many rows --top left out.
	More int
	// Lead tables are what a reader should see before all else: text shows them above the facts.
	Lead bool
	// Aside tables sum up another one; CSV leaves them out.
	Aside bool
	// Keys are the keys of the columns that say what a row is about in any recording: by
	// them Diff finds its counterpart. nil: those columns that diff.keyNames lists; empty: rows
	// are events of one recording.
	Keys []string
	// Verdicts are the values that its column verdict can have, as far as Diff is to count
	// rows that got or lost one.
	Verdicts []string
}

// Row is one row of a Table. A cell is an int64, a float64, a string, a []string, of a course
// an []int64 or []float64, or nil for a value that is not known; its column says in which unit.
type Row struct {
	Cells []any
	// Stack is shown under the table: leaf first. StackFrames is how many frames it
	// has in the recording.
	Stack       []Frame
	StackFrames int
	// Evidence says in words why the row says what it says.
	Evidence string
	// Brief rows are shown in text without their stack and evidence.
	Brief bool

	StackID int32 // id of Stack, until it is filled in
}

// Frame is one frame of a stack in a report, or stands for several that are not shown.
type Frame struct {
	Func   string `json:"func"`
	File   string `json:"file,omitempty"`
	Line   int32  `json:"line,omitempty"`
	Module string `json:"module,omitempty"`
	// Folded, if it is not 0, is how many frames are not shown here, and Of what they
	// are part of. Without Of they are those beyond a limit.
	Folded int      `json:"-"`
	Of     []string `json:"-"`
}

// Column describes the values of a column or fact.
type Column struct {
	// Key is the name in JSON, CSV, --sort and --fail-on; it ends in the unit.
	Key string
	// Title is the heading in text; a column without one is not in tables.
	Title string
	Unit  Unit
	// About says how the value is computed.
	About string
}

// Unit says how text shows a value; JSON and CSV have the bare number.
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
	UnitCourse         // a list of values at equal steps of time; text draws it from 0 to the highest

	// UnitSigned is added to the unit of differences: they are shown with their sign.
	UnitSigned Unit = 1 << 7
)

// Number returns the report's value of that name for --fail-on: a fact, a total or
// a count of the quality block. known is false if the report has no such value at
// all, ok if the recording does not tell it.
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

// NumberNames lists the names that Number knows.
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

package query

// ReportMoment selects the point in time that a report describes.
type ReportMoment int

// Values of Moment.
const (
	MomentPeak      ReportMoment = iota // when device memory that passes the filter had its maximum
	MomentEnd                           // state at the end of the window
	MomentGivenTime                     // state at a time that the user gave
)

// Options are the options of a report. The zero value is the whole recording grouped by call site,
// with all rows.
type Options struct {
	Filter
	// GroupBy is one of the report's group names. "" is the first of them.
	GroupBy string
	// Top is the maximum number of rows in a table. 0 means all rows.
	Top int
	// Sort is the key of a column. "" is the report's default order.
	Sort string
	// Suppressions, if not nil, exclude memory from leak reports.
	Suppressions *Suppressions
	// MaxFrames is the maximum number of frames shown for a stack. 0 means all frames.
	MaxFrames int
	// Hide are the rules for hidden frames. nil is the default of the report: the default rules for
	// stacks in text, and none in profiles.
	Hide *FrameRules
	// AllFrames shows all frames, regardless of Hide and MaxFrames.
	AllFrames bool
	// AllStacks shows the stacks of all rows in text, not only those of leaks. AllFrames implies
	// it.
	AllStacks bool
	// ForText is set if the report is printed as text. Reports then may add drawings of characters.
	ForText bool
	// MaxTimedCalls is about the number of calls that reports about idle time and steps read for GPU times,
	// from the start of the window; 0 means all calls.
	MaxTimedCalls int64
}

// MaxTimedCalls of the summary, which takes a second, and of the HTML page.
const (
	QuickTimedCalls = 100_000
	PageTimedCalls  = 500_000
)

// FrameRules returns the rules for stacks in text.
func (o *Options) FrameRules() *FrameRules {
	switch {
	case o.AllFrames:
		return new(FrameRules)
	case o.Hide == nil:
		return DefaultFrameRules
	}
	return o.Hide
}

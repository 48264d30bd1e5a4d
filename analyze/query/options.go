package query

// Moment is a moment.
type Moment int

// Moments.
const (
	AtPeak Moment = iota // most memory live on all devices together, as far as the filter lets it through
	AtEnd                // end of the window
	AtTime
)

// Options shape a report; the zero value is the whole recording by site, all rows.
type Options struct {
	Filter
	// GroupBy is one of GroupNames; "" is the first.
	GroupBy string
	// Top bounds the rows of a table, 0 is all of them.
	Top int
	// Sort is the key of a column; "" is the report's own order.
	Sort string
	// Suppressions, if set, leave memory out of reports on leaks.
	Suppressions *Suppressions
	// MaxFrames bounds the frames shown of a stack, 0 is all of them.
	MaxFrames int
	// Hide says which frames are not shown; nil is what the report does by itself: the
	// default rules where stacks are read by people, none in profiles.
	Hide *FrameRules
	// AllFrames shows all frames, whatever Hide and MaxFrames say.
	AllFrames bool
	// AllStacks shows in text the stacks of all rows, also of those that are no leak.
	// So does AllFrames.
	AllStacks bool
}

// FrameRules returns the rules for frames of stacks that people read.
func (o *Options) FrameRules() *FrameRules {
	switch {
	case o.AllFrames:
		return new(FrameRules)
	case o.Hide == nil:
		return DefaultFrameRules
	}
	return o.Hide
}

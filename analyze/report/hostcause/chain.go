package hostcause

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// ChainColumns are the columns of ChainValues. Tables have them if the recording says who ended waits. Text output has
// the same in the sentence of Predicate and in the evidence.
var ChainColumns = []report.Column{
	{
		Key: "activity", Title: "", Unit: report.UnitText,
		About: "what the thread at the end of the chain of wakers did, or the launching thread itself",
	},
	{
		Key: "waited_for", Title: "", Unit: report.UnitText,
		About: "name of the thread at the end of the chain; absent: the launching thread did it itself",
	},
	{Key: "waited_for_pid", Title: "", Unit: report.UnitID, About: "process id of that thread"},
	{Key: "waited_for_tid", Title: "", Unit: report.UnitID, About: "thread id of that thread"},
	{
		Key: "links", Title: "", Unit: report.UnitCount,
		About: "number of threads on the way to the end of the chain: each one ended the wait of the one before",
	},
	{
		Key: "own_wait", Title: "", Unit: report.UnitText,
		About: "for what the launching thread itself waited meanwhile",
	},
	{
		Key: "waited_at", Title: "", Unit: report.UnitText,
		About: "line in which the launching thread waited meanwhile",
	},
}

// AddChainColumns adds ChainColumns to a table if the recording says who ended waits.
func AddChainColumns(t *timeline.Timeline, table *report.Table) {
	if hosttime.HasWakers(t) {
		table.Columns = slices.Concat(table.Columns, ChainColumns)
	}
}

// ChainValues returns the cells of ChainColumns; nil if the recording does not say who ended waits.
func ChainValues(t *timeline.Timeline, e *hosttime.Entry) report.Values {
	switch {
	case !hosttime.HasWakers(t):
		return nil
	case !e.Chain.IsOther():
		return report.Values{
			"activity": e.Cause.String(), "waited_for": nil, "waited_for_pid": nil, "waited_for_tid": nil, "links": nil,
			"own_wait": nil, "waited_at": nil,
		}
	}
	c := &e.Chain
	return report.Values{
		"activity": e.Cause.String(), "waited_for": units.TextOrNil(endName(t, c)), "waited_for_pid": int64(c.End.Pid),
		"waited_for_tid": int64(c.End.Tid), "links": int64(c.Links), "own_wait": c.Cause.String(),
		"waited_at": LineOf(t, c.Stack),
	}
}

// Predicate returns what the host did, as a predicate of "the host".
func Predicate(t *timeline.Timeline, e *hosttime.Entry) string { return predicate(t, &e.Place, e.Ends) }

// predicate is Predicate of a place whose chains end at a number of threads.
func predicate(t *timeline.Timeline, at *hosttime.Place, ends int) string {
	if !at.Chain.IsOther() {
		return at.Cause.String()
	}
	end := EndText(t, &at.Chain)
	if ends > 1 {
		end += " and " + units.CountWithNoun(int64(ends-1), "other thread")
	}
	did := at.Cause.String()
	if at.Cause == hosttime.CauseUnknown {
		did = "did something unknown"
	}
	if at.Chain.InLoader {
		return fmt.Sprintf("waited for the DataLoader: %s %s", end, did)
	}
	return fmt.Sprintf("waited for %s, which %s", end, did)
}

// EndText names the thread at the end of a chain in a sentence.
func EndText(t *timeline.Timeline, c *hosttime.Chain) string {
	text := "the main thread"
	if c.End.Tid != c.End.Pid {
		text = "thread " + endName(t, c)
	}
	if len(t.Facts.Processes) <= 1 {
		return text
	}
	text += fmt.Sprintf(" of process %d", c.End.Pid)
	if rank := t.Facts.RankText(c.End.Pid); rank != "" {
		text += fmt.Sprintf(" (rank %s)", rank)
	}
	return text
}

// endName returns the name of the thread at the end of a chain, or its number.
func endName(t *timeline.Timeline, c *hosttime.Chain) string {
	switch {
	case c.EndName != "":
		return c.EndName
	case t.Facts.Threads[c.End] != "":
		return t.Facts.Threads[c.End]
	}
	return fmt.Sprint(c.End.Tid)
}

// chainText says where the thread itself waited, and how far the end of the chain is.
func chainText(t *timeline.Timeline, c *hosttime.Chain) string {
	text := withLine(t, "the thread itself "+c.Cause.String(), c.Stack)
	if c.Links > 1 {
		text += fmt.Sprintf(", behind a chain of %d threads", c.Links)
	}
	return text
}

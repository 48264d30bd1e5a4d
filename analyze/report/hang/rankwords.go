package hang

import (
	"cmp"
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// communicatorText names a communicator: its name or identity, and its ranks.
func communicatorText(s *rankstate.State, i int) string {
	return fmt.Sprintf("%s (%s)", communicatorName(s, i), memberSetText(s, &s.Communicators[i]))
}

// communicatorName returns the name of a communicator, or its identity as NCCL_DEBUG prints it.
func communicatorName(s *rankstate.State, i int) string {
	c := &s.Communicators[i]
	if c.ID == 0 && c.Name == "" {
		return "an unknown communicator"
	}
	return cmp.Or(c.Name, fmt.Sprintf("%016x", uint64(c.ID)))
}

// memberSetText names the members of a communicator.
func memberSetText(s *rankstate.State, c *rankstate.Communicator) string {
	var known []int
	for _, m := range c.Members {
		if m != waitgraph.NotRecorded {
			known = append(known, m)
		}
	}
	text := rankSetText(s, known)
	if missing := len(c.Members) - len(known); missing > 0 {
		text += fmt.Sprintf(" and %d not recorded", missing)
	}
	return text
}

// waitText names an operation that waits, such as "AllReduce #1841 of fa93daea854b060b (0-7)".
func waitText(s *rankstate.State, w *waitgraph.Wait) string {
	c := &s.Communicators[w.Communicator]
	if c.MadeBy != "" {
		return fmt.Sprintf("%s of communicator %s", c.MadeBy, communicatorText(s, w.Communicator))
	}
	if c.Init {
		return fmt.Sprintf("the init of communicator %s", communicatorText(s, w.Communicator))
	}
	if o := calledOperation(s, w); o != nil {
		return fmt.Sprintf("%s #%d of %s", o.Function.String(), w.Number,
			communicatorText(s, w.Communicator))
	}
	return fmt.Sprintf("#%d of %s", w.Number, communicatorText(s, w.Communicator))
}

// calledOperation returns the call of the first rank that called an operation, nil if it is not known.
func calledOperation(s *rankstate.State, w *waitgraph.Wait) *rankstate.Call {
	for _, rank := range w.Called {
		if c := callOf(s, rank, w); c != nil {
			return c
		}
	}
	return nil
}

// callOf returns a rank's call of an operation, nil if it made none.
func callOf(s *rankstate.State, rank int, w *waitgraph.Wait) *rankstate.Call {
	operations := s.Graph.Ranks[rank].Operations
	for i := range operations {
		o := &operations[i]
		isPeer := o.Function == collective.Send || o.Function == collective.Recv
		if o.Communicator == w.Communicator && o.Number == w.Number && isPeer == (w.Sender >= 0) {
			return &s.Ranks[rank].Calls[i]
		}
	}
	return nil
}

// callText names the call of a rank, such as "AllReduce #1841".
func callText(c *rankstate.Call) string {
	return fmt.Sprintf("%s #%d", c.Function.String(), c.Sequence)
}

// amountText returns the size and the type of a call, such as "25.0 MiB bfloat16".
func amountText(c *rankstate.Call) string {
	text := units.FormatBytes(c.Bytes)
	if int(c.DataType) < len(format.DataTypes) {
		text += " " + format.DataTypes[c.DataType]
	}
	return text
}

// ranksText returns "rank 6" or "ranks 0-5, 7".
func ranksText(s *rankstate.State, indexes []int) string {
	text := rankSetText(s, indexes)
	if len(indexes) == 1 {
		if s.Ranks[indexes[0]].Member.Rank < 0 {
			return text
		}
		return "rank " + text
	}
	return "ranks " + text
}

// verbFor returns the verb for a number of ranks.
func verbFor(indexes []int, one, many string) string {
	if len(indexes) == 1 {
		return one
	}
	return many
}

// placeText says where the host of a rank is: host, process, line and what it does.
func placeText(r *rankstate.Rank, endNs int64) string {
	text := fmt.Sprintf("%s pid %d: ", r.Host, r.Member.Pid)
	switch {
	case r.DeadNs != 0:
		return text + r.Fate
	case r.Does != "" && r.Site != "":
		return text + r.Does + ", at " + r.Site
	case r.Does != "":
		return text + r.Does
	case r.LastCallNs > 0:
		return text + "no recorded call for " + units.FormatDuration(max(0, endNs-r.LastCallNs))
	}
	return text + "no call was recorded"
}

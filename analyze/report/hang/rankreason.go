package hang

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/format"
)

// reasonText says in a few words what the culprits of a fault do instead of what the others wait for: how they died,
// where they are, or what they call. It is "" if nothing says so.
func reasonText(s *rankstate.State, f *waitgraph.Fault) string {
	switch {
	case f.Kind == waitgraph.Died:
		return deathsText(s, f.Ranks) + " died"
	case f.Kind == waitgraph.Mismatch && len(f.Sides) == 2:
		few, others := &f.Sides[0], &f.Sides[1]
		if len(f.Ranks) > 0 {
			return fmt.Sprintf("it calls %s; the others call %s", sideText(s, few), sideText(s, others))
		}
		return fmt.Sprintf("%s: %s; %s: %s", ranksText(s, few.Ranks), sideText(s, few),
			ranksText(s, others.Ranks), sideText(s, others))
	case f.Kind == waitgraph.Missing && len(f.Ranks) == 1:
		r := &s.Ranks[f.Ranks[0]]
		if r.Does == "" && r.Site == "" {
			return ""
		}
		return fmt.Sprintf("%s %s%s", ranksText(s, f.Ranks), r.Does, atText(r.Site))
	}
	return ""
}

// sideText names the call of one side of a mismatch with its arguments and its line, such as "AllReduce of 1024
// float32, sum, at all_reduce (train.py:10)".
func sideText(s *rankstate.State, side *waitgraph.Side) string {
	c := &s.Ranks[side.Ranks[0]].Calls[side.Operation]
	text := fmt.Sprintf("%s of %d", c.Function, c.Count)
	if int(c.DataType) < len(format.DataTypes) {
		text += " " + format.DataTypes[c.DataType]
	}
	if int(c.Reduction) < len(format.Reductions) {
		text += ", " + format.Reductions[c.Reduction]
	}
	if c.Root != format.NoRoot {
		text += fmt.Sprintf(", root %d", c.Root)
	}
	if c.Site == timeline.NoStackSite {
		return text
	}
	return text + atText(c.Site)
}

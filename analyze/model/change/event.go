package change

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/changepoint"
)

// Event is a time at which one or more series changed.
type Event struct {
	// BeforeNs and AfterNs are those of the change that is located best, Unix ns.
	BeforeNs, AfterNs int64
	// Changes are in the order of metrics: causes before effects.
	Changes []Located
}

// Located is a change of a finding.
type Located struct {
	*Finding
	Change *changepoint.Change
}

// nearNs is how long before or after another change a change may be to have the same event: samples are some
// seconds apart, and temperatures and averages follow late.
const nearNs = 3_000_000_000

// Events returns the steps of the findings, joined by time. Changes of patterns are none.
func Events(findings []*Finding) (events []*Event) {
	var list []Located
	for _, f := range findings {
		for i := range f.Changes {
			if f.Changes[i].Kind == changepoint.Step {
				list = append(list, Located{f, &f.Changes[i]})
			}
		}
	}
	// The best located changes make the events, and the others join them.
	slices.SortStableFunc(list, func(a, b Located) int {
		return cmp.Or(cmp.Compare(a.widthNs(), b.widthNs()), cmp.Compare(a.Change.AfterNs, b.Change.AfterNs))
	})
	for _, l := range list {
		var nearest *Event
		for _, e := range events {
			if l.distanceNs(e) <= nearNs && (nearest == nil || l.distanceNs(e) < l.distanceNs(nearest)) {
				nearest = e
			}
		}
		if nearest == nil {
			nearest = &Event{BeforeNs: l.Change.BeforeNs, AfterNs: l.Change.AfterNs}
			events = append(events, nearest)
		}
		nearest.Changes = append(nearest.Changes, l)
	}
	for _, e := range events {
		slices.SortStableFunc(e.Changes, func(a, b Located) int {
			return cmp.Or(cmp.Compare(a.order, b.order), cmp.Compare(a.Device, b.Device), cmp.Compare(a.Pid, b.Pid))
		})
	}
	slices.SortStableFunc(events, func(a, b *Event) int { return cmp.Compare(a.AfterNs, b.AfterNs) })
	return events
}

func (l *Located) widthNs() int64 { return l.Change.AfterNs - l.Change.BeforeNs }

// distanceNs returns the time between a change and an event, 0 if they overlap.
func (l *Located) distanceNs(e *Event) int64 {
	return max(0, e.BeforeNs-l.Change.AfterNs, l.Change.BeforeNs-e.AfterNs)
}

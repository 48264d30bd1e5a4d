package html

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

// hostOrigin identifies waits with one reason, or CPU samples, from one stack.
type hostOrigin struct {
	stack  int32
	reason string // "" for CPU samples
}

// hostFlame sums up the time of threads on a processor and in waits by stack.
type hostFlame struct {
	ns map[hostOrigin]int64
}

// readHostFlame sums up the rows of class host that pass the filter.
func readHostFlame(t *timeline.Timeline, f *query.Filter) (*hostFlame, error) {
	h := &hostFlame{ns: make(map[hostOrigin]int64)}
	add := func(key hostOrigin, ns int64) { h.ns[key] = units.EndOfRange(h.ns[key], ns) }
	return h, hosttime.NewSelection(t, f).Each(t, hosttime.Yield{
		Wait: func(w *hosttime.Wait) {
			add(hostOrigin{w.Stack, cmp.Or(w.Fact.Reason, "unknown")}, w.ToNs-w.FromNs)
		},
		Sample: func(s *hosttime.CPUSample) { add(hostOrigin{s.Stack, ""}, s.ForNs) },
	})
}

// addTo adds the times to the flame graph, with the reason of a wait as the leaf of its stack.
func (h *hostFlame) addTo(b *flameBuilder) {
	keys := make([]hostOrigin, 0, len(h.ns))
	for key := range h.ns {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b hostOrigin) int { // so that the texts have the same numbers each time
		return cmp.Or(cmp.Compare(a.stack, b.stack), strings.Compare(a.reason, b.reason))
	})
	for _, key := range keys {
		var v flameValues
		if key.reason == "" {
			v[flameOnCPUNs] = h.ns[key]
			b.addStack(stack.Pair{Stack: key.stack}, &v)
			continue
		}
		v[flameOffCPUNs] = h.ns[key]
		b.addStack(stack.Pair{Stack: key.stack}, &v)
		b.addLeaf(stack.Pair{Stack: key.stack}, "[off-cpu] "+units.SanitizeText(key.reason), &v)
	}
}

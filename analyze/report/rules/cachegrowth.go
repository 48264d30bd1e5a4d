package rules

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/report/cachegrowth"
	"github.com/gpurec/gpurec/analyze/units"
)

var cacheGrowthRule = Rule{
	ID: "cache-growth",
	About: "PyTorch's allocator reserves more and more memory, at least 100 MiB per window, or per minute if the " +
		"window is shorter. " +
		"The memory that is unused even at the busiest time rises until the end, and is at least half of the " +
		"growth. The hit names the cause: longer requests, many streams, many private pools, or live blocks " +
		"between the free ones",
	Report: "frag",
	check:  checkCacheGrowth,
}

// checkCacheGrowth returns one hit for each cause, because the advice differs.
func checkCacheGrowth(s *Scan) ([]Hit, error) {
	var hits []Hit
	hitOf := make(map[cachegrowth.Cause]int)
	findings := s.Leaks.Caches.Finish()
	for i := range findings {
		f := &findings[i]
		n, ok := hitOf[f.Cause]
		if !ok {
			n = len(hits)
			hitOf[f.Cause] = n
			h := s.newHit(SeverityNotice, "%s: %s", f.GrowthText(), f.CauseText())
			h.Advice = f.Cause.Advice()
			s.lowerConfidenceForInferredStacks(&h)
			hits = append(hits, h)
		}
		hits[n].Evidence = append(hits[n].Evidence, s.cacheGrowthEvidence(f)...)
	}
	return hits, nil
}

// cacheGrowthEvidence returns one row for each call site whose requests needed new segments. Without
// such sites it returns one row for the process.
func (s *Scan) cacheGrowthEvidence(f *cachegrowth.Finding) (list []Evidence) {
	growth := fmt.Sprintf("%s unused at any time; %s", units.FormatBytes(f.UnusedBytes), f.GrowthText())
	for i := range f.Sites {
		site := &f.Sites[i]
		list = append(list, Evidence{
			Where: site.Label, Stack: site.Stack, Count: site.Segments, Bytes: site.Bytes,
			FirstNs: site.FirstNs, lastNs: site.LastNs,
			Detail: fmt.Sprintf(
				"%s for requests of %s; %s",
				units.CountWithNoun(site.Segments, "new segment"),
				site.SizesText(),
				growth,
			),
		})
	}
	if len(list) == 0 {
		list = []Evidence{{Where: s.t.PidLabel(f.Pid), Bytes: f.UnusedBytes, Detail: growth}}
	}
	return list
}

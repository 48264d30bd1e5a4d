package cachegrowth

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// FactColumns are the columns of Facts.
var FactColumns = []report.Column{
	{
		Key: "cache_growth", Title: "cache", Unit: report.UnitText,
		About: "PyTorch's caching allocator whose cache grows most, and why. The memory that even the most " +
			"demanding request between two of 20 checkpoints leaves unused must rise until the end, and not slow " +
			"down. At least half of the growth of the reserved memory must be unused. It must be at least 100 MiB " +
			"per window, or per minute if the window is shorter. The causes are those of rule cache-growth",
	},
	{
		Key: "cache_growth_bytes_per_min", Title: "", Unit: report.UnitBytesRate,
		About: "growth of the reserved memory of all caches that grow, per minute; 0 if none grows, absent if no " +
			"segments were recorded",
	},
}

// Facts returns the growth of all caches as facts of a report. findings is the result of Finish.
func (s *Scan) Facts(findings []Finding) []report.Fact {
	var text string
	var most, sum float64
	var perMin any
	for i := range findings {
		f := &findings[i]
		sum += f.PerMin
		if f.PerMin > most {
			most, text = f.PerMin, f.GrowthText()+": "+f.CauseText()
		}
	}
	if n := len(findings); n > 1 {
		text += fmt.Sprintf(" (%d allocators)", n)
	}
	if s.hasCaches() {
		perMin = units.RoundInt(sum)
	}
	return report.NewFacts(FactColumns, report.Values{
		"cache_growth":               text,
		"cache_growth_bytes_per_min": perMin,
	})
}

// hasCaches reports whether the segments of an allocator are known.
func (s *Scan) hasCaches() bool {
	for _, k := range s.caches {
		if k != nil {
			return true
		}
	}
	return false
}

package rules

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	objectreport "github.com/gpurec/gpurec/analyze/report/objects"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

var objectLeakRule = Rule{
	ID: "object-leak",
	About: "the number of live driver objects of a call site grows, such as events, streams, graphs or modules: " +
		"verdict growing of analyze objects. If only loaded code grows, it is a notice, because libraries keep it " +
		"for later calls. Suppressions of leaks apply",
	Report: "objects",
	advice: "Destroy each object when it is no longer used, or keep a pool and use its objects again. In PyTorch, " +
		"drop the references to events and to CUDA graphs.",
	check: checkObjectLeak,
}

// objectClasses is a requirement that each class with calls about objects meets.
var objectClasses = strings.Join(
	[]string{format.RecordGraph, format.RecordStream, format.RecordModule, format.RecordMemory}, " or ")

// newObjectScan returns a scan of driver objects by call site. It has a view of its own, because the
// replay of memory runs at the same time.
func newObjectScan(t *timeline.Timeline, opt *query.Options) (*objectreport.Scan, error) {
	bySite := *opt
	bySite.GroupBy = ""
	return objectreport.NewScan(t.NewView(), &bySite)
}

func checkObjectLeak(s *Scan) ([]Hit, error) {
	findings := s.objects.Classify()
	h := Hit{Severity: SeverityNotice, Confidence: report.ConfidenceHigh}
	var parts []string
	for kind := range objects.NumKinds {
		if text := objectreport.DescribeGrowth(findings, kind); text != "" {
			parts = append(parts, text)
			if kind != objects.KindModule && kind != objects.KindLibrary {
				h.Severity = SeverityProblem
			}
		}
	}
	if len(parts) == 0 {
		return nil, nil
	}
	for i := range findings {
		f := &findings[i]
		if f.Verdict != objectreport.VerdictGrowing {
			continue
		}
		if len(h.Evidence) == 0 {
			h.Confidence, h.Reasons = s.objects.Confidence(f, &s.Quality)
		}
		h.Evidence = append(h.Evidence, Evidence{
			Where: f.Label, Stack: f.StackID(), Count: f.LiveCount(),
			Detail: f.Kind().Plural() + ", " + units.FormatCount(units.RoundInt(f.PerHour)) + "/h; " + f.Evidence(),
		})
	}
	h.Summary = strings.Join(parts, "; ")
	return []Hit{h}, nil
}

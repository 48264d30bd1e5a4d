package report

import (
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// CollectFunc adds the observers of a report to a survey. It returns the function that makes the report after the
// survey was read. Its errors are those about the options and about missing classes of calls.
type CollectFunc func(*survey.Survey, query.Options) (FinishFunc, error)

// FinishFunc makes a report of what its observers have seen.
type FinishFunc func() (*Report, error)

// RunSurvey computes a report in a survey of its own, on a view of t.
func RunSurvey(t *timeline.Timeline, opt query.Options, collect CollectFunc) (*Report, error) {
	sv := survey.New(t.NewView(), &opt.Filter)
	finish, err := collect(sv, opt)
	if err != nil {
		return nil, err
	}
	if err := sv.Read(); err != nil {
		return nil, err
	}
	return finish()
}

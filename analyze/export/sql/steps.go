package sql

import (
	"github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// FindSteps finds the steps of all processes, as the report steps does. SQL cannot find them. It reads
// the calls of the recording twice, and returns errors of reading it.
func FindSteps(t *timeline.Timeline) ([]Step, error) {
	found, err := steps.Find(steps.NewReader(t, &query.Filter{}), steps.Options{})
	if err != nil {
		return nil, err
	}
	var list []Step
	for _, p := range found.Processes {
		for i := range p.Steps {
			s := &p.Steps[i]
			list = append(list, Step{
				Pid: p.Pid, Number: i + 1, StartNs: s.BeginNs, EndNs: s.EndNs, Operations: s.Operations, IsCut: s.IsCut,
			})
		}
	}
	return list, nil
}

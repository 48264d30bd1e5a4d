package steps

import (
	"cmp"
	"slices"

	model "github.com/gpurec/gpurec/analyze/model/steps"
)

// ProcessSteps are the steps of a process.
type ProcessSteps struct {
	Pid      int32
	Steps    []model.Step // in order of time, also cut ones; the number of a step is its index plus 1
	Complete int64        // steps that are not cut
	MedianNs int64        // of the complete steps
	// Outliers are the longest outliers, in order of time. OmittedOutliers counts the others.
	Outliers        []Outlier
	OmittedOutliers int64
	// HasGPUTimes reports that the causes of outliers use GPU times.
	HasGPUTimes bool
}

// Outlier is a step that takes much longer than the median.
type Outlier struct {
	Step   int    // index of ProcessSteps.Steps
	Cause  string // one of Causes; "" if no recorded call differs
	Detail string // the cause in words
}

// Causes are the kinds of causes of outliers.
var Causes = []string{
	string(causeOutside), string(causeCall), string(causeWait), string(causeLaunches), string(causeKernel),
	string(causeMany),
}

// processSteps returns the steps of all processes with complete steps, that with the most steps first.
func (sc *scan) processSteps() (list []ProcessSteps) {
	for _, s := range sc.processes {
		if s.complete == 0 {
			continue
		}
		p := ProcessSteps{
			Pid: s.Pid, Steps: s.Steps, Complete: s.complete, MedianNs: s.medianNs(),
			OmittedOutliers: s.outliersOmitted, HasGPUTimes: sc.activity != nil,
		}
		for _, o := range s.outliers {
			p.Outliers = append(p.Outliers, Outlier{o.step, string(o.finding.cause), o.finding.detail})
		}
		slices.SortFunc(p.Outliers, func(a, b Outlier) int { return cmp.Compare(a.Step, b.Step) })
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b ProcessSteps) int {
		return cmp.Or(cmp.Compare(b.Complete, a.Complete), cmp.Compare(a.Pid, b.Pid))
	})
	return list
}

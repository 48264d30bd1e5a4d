package byrank

import (
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Part is the report on one rank, or on all ranks of one recording.
type Part struct {
	Members []*job.Member // not empty
	Host    string
	Report  *report.Report
}

// Label names the ranks of the part, such as "3" or "0-3".
func (p *Part) Label() string { return labelOf(p.Members) }

// Options are the options of Read.
type Options struct {
	// WholeRecordings computes one report for each recording, for reports about the machine. Rows with a process have
	// its rank.
	WholeRecordings bool
	// Selects reports whether a member is part of the report. nil selects all.
	Selects func(*job.Member) bool
	// Prepare returns the options for a recording. It may change the Timeline.
	Prepare func(*timeline.Timeline) (query.Options, error)
	// Progress, if not nil, is called before each recording is opened.
	Progress func(path string)
}

// Read computes the report on each rank of a job, in the order of the recordings. It opens one recording after the
// other. It returns errors of opening and reading the recordings, and those of run and Prepare.
func Read(j *job.Job, opt Options, run report.RunFunc) ([]Part, error) {
	var parts []Part
	for i := range j.Paths {
		var members []*job.Member
		for _, m := range j.MembersOf(i) {
			if opt.Selects == nil || opt.Selects(m) {
				members = append(members, m)
			}
		}
		if len(members) == 0 {
			continue
		}
		if opt.Progress != nil {
			opt.Progress(j.Paths[i])
		}
		list, err := readRecording(j, i, members, &opt, run)
		if err != nil {
			return nil, err
		}
		parts = append(parts, list...)
	}
	return parts, nil
}

// readRecording returns the reports on members of one recording.
func readRecording(j *job.Job, i int, members []*job.Member, opt *Options, run report.RunFunc) ([]Part, error) {
	t, err := j.Open(i)
	if err != nil {
		return nil, err
	}
	defer t.Rec.Close()
	q, err := opt.Prepare(t)
	if err != nil {
		return nil, err
	}
	host := j.Hosts[j.Recordings[i].Host].Name
	if opt.WholeRecordings {
		r, err := run(t.NewView(), q)
		return []Part{{Members: members, Host: host, Report: r}}, err
	}
	var parts []Part
	for _, m := range members {
		q.Pids = []int32{m.Pid}
		r, err := run(t.NewView(), q)
		if err != nil {
			return nil, err
		}
		parts = append(parts, Part{Members: []*job.Member{m}, Host: host, Report: r})
	}
	return parts, nil
}

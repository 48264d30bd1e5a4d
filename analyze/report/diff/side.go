package diff

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Per is what the numbers of a comparison are divided by: nothing (the zero value), seconds, or
// steps.
type Per struct {
	unit   string
	kernel *regexp.Regexp // each launch of such a kernel is a step
}

// ParsePer parses "second", or "step=REGEX" with the name of a kernel that is launched once a step.
func ParsePer(text string) (Per, error) {
	if text == "" || text == "second" {
		return Per{unit: text}, nil
	}
	pattern, ok := strings.CutPrefix(text, "step=")
	if !ok {
		return Per{}, fmt.Errorf("%q is neither second nor step=REGEX", text)
	}
	kernel, err := regexp.Compile(pattern)
	if err != nil {
		return Per{}, err
	}
	return Per{"step", kernel}, nil
}

// NoStepsError is returned for a recording without a launch of the kernel that marks steps.
type NoStepsError struct{ Kernel string }

// Error names the pattern that no kernel matches.
func (e *NoStepsError) Error() string {
	return fmt.Sprintf("no launch of a kernel that matches %q", e.Kernel)
}

// ReportFunc makes a report of a recording.
type ReportFunc func(*timeline.Timeline, query.Options) (*report.Report, error)

// Side is one of the two recordings of a comparison: the report on it, and its setup. It does not
// need the recording any more.
type Side struct {
	Path   string
	report *report.Report
	setup  map[string]string // by setupNames
	per    Per
	amount float64 // seconds or steps to divide by; 0: numbers are not divided
}

// NewSide makes the report for one side of a comparison. Sort and Top of the options are not used:
// they belong to the comparison. It returns a *NoStepsError if there is nothing to divide by.
func NewSide(t *timeline.Timeline, make ReportFunc, opt query.Options, per Per) (*Side, error) {
	opt.Sort, opt.Top = "", 0
	r, err := make(t, opt)
	if err != nil {
		return nil, err
	}
	s := &Side{Path: t.Rec.Path, report: r, setup: setup(t), per: per}
	switch per.unit {
	case "second":
		s.amount = float64(r.Window.DurNs()) / 1e9
	case "step":
		steps, err := launchesOf(t, per.kernel, &opt.Filter)
		if err != nil {
			return nil, err
		}
		if s.amount = float64(steps); steps == 0 {
			return nil, &NoStepsError{per.kernel.String()}
		}
	}
	return s, nil
}

// setupNames are the names of what setup returns, in the order of the table.
var setupNames = []string{
	"driver", "CUDA", "GPUs", "framework", "stacks", "host", "CPU", "kernel", "gpurec", "attached by",
	"processes", "ranks", "complete",
}

// setup returns the machine and software of a recording, and how it was made, by setupNames.
func setup(t *timeline.Timeline) map[string]string {
	m := &t.Rec.Meta
	var gpus, frameworks []string
	counts := make(map[string]int)
	for _, d := range t.Facts.Devices {
		counts[d.Name]++
	}
	for name, n := range counts {
		gpus = append(gpus, fmt.Sprintf("%d x %s", n, name))
	}
	for _, a := range t.Facts.Allocators {
		frameworks = append(frameworks, strings.TrimSpace(strings.Join([]string{a.Allocator, a.Version, a.Conf}, " ")))
	}
	slices.Sort(gpus)
	slices.Sort(frameworks)
	return map[string]string{
		"driver":      m.DriverVersion,
		"CUDA":        m.CUDAVersion,
		"GPUs":        strings.Join(gpus, ", "),
		"framework":   strings.Join(slices.Compact(frameworks), ", "),
		"stacks":      m.Stacks,
		"host":        m.Host,
		"CPU":         m.Machine.CPU,
		"kernel":      strings.TrimSpace(m.OSRelease + " " + m.Arch),
		"gpurec":      m.GpurecVersion,
		"attached by": m.Attach,
		"processes":   units.Plural(int64(len(t.Facts.Processes)), "process"),
		"ranks":       t.RanksText(),
		"complete":    m.Complete,
	}
}

// launchesOf counts the launches of kernels whose name matches, and the launches of graphs if the
// name of the function does.
func launchesOf(t *timeline.Timeline, kernel *regexp.Regexp, f *query.Filter) (int64, error) {
	u := calls.NewCounter(t, f)
	if err := u.Scan(); err != nil {
		return 0, err
	}
	var n int64
	for name, s := range u.Kernels {
		if kernel.MatchString(name) {
			n += s.Calls - s.Captured - s.Errors
		}
	}
	for name, s := range u.Calls {
		if name.Kind == format.KindLaunch && catalog.BaseName(name.Name) == "cuGraphLaunch" &&
			kernel.MatchString(name.Name) {
			n += s.Calls - s.Captured - s.Errors
		}
	}
	return n, nil
}

// label returns the path of the recording and the length of its window.
func (s *Side) label() string { return s.Path + ", " + units.Duration(s.report.Window.DurNs()) }

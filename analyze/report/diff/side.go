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

// Divisor is the divisor of the numbers of a comparison: none (the zero value), seconds, or steps.
type Divisor struct {
	unit   string
	kernel *regexp.Regexp // each launch of a matching kernel is a step
}

// ParseDivisor parses "second", or "step=REGEX", where REGEX matches a kernel that is launched once
// per step.
func ParseDivisor(text string) (Divisor, error) {
	if text == "" || text == "second" {
		return Divisor{unit: text}, nil
	}
	pattern, ok := strings.CutPrefix(text, "step=")
	if !ok {
		return Divisor{}, fmt.Errorf("%q is neither second nor step=REGEX", text)
	}
	kernel, err := regexp.Compile(pattern)
	if err != nil {
		return Divisor{}, err
	}
	return Divisor{"step", kernel}, nil
}

// NoStepLaunchError is returned for a recording without a launch of the kernel that counts steps.
type NoStepLaunchError struct{ Kernel string }

// Error names the pattern of the kernel.
func (e *NoStepLaunchError) Error() string {
	return fmt.Sprintf("no launch of a kernel matches %q", e.Kernel)
}

// Side is one of the two recordings of a comparison: its report and its setup. It does not refer to
// the open recording.
type Side struct {
	Path   string
	report *report.Report
	setup  map[string]string // by name of setupPropertyNames
	per    Divisor
	amount float64 // number of seconds or steps; 0: numbers are not divided
}

// NewSide computes the report for one side of a comparison. It ignores Sort and Top of the options,
// which belong to the comparison. It returns a *NoStepLaunchError if no launch counts as a step.
func NewSide(t *timeline.Timeline, make report.RunFunc, opt query.Options, per Divisor) (*Side, error) {
	opt.Sort, opt.Top = "", 0
	r, err := make(t, opt)
	if err != nil {
		return nil, err
	}
	s := &Side{Path: t.Rec.Path, report: r, setup: describeSetup(t), per: per}
	switch per.unit {
	case "second":
		s.amount = float64(r.Window.DurNs()) / 1e9
	case "step":
		steps, err := countMatchingLaunches(t, per.kernel, &opt.Filter)
		if err != nil {
			return nil, err
		}
		if s.amount = float64(steps); steps == 0 {
			return nil, &NoStepLaunchError{per.kernel.String()}
		}
	}
	return s, nil
}

// setupPropertyNames are the keys of the result of setup, in the order of the table.
var setupPropertyNames = []string{
	"driver", "CUDA", "GPUs", "framework", "stacks", "host", "CPU", "kernel", "gpurec", "attached by",
	"processes", "ranks", "complete",
}

// describeSetup returns the machine, the software and the recording options of a recording, by
// setupPropertyNames.
func describeSetup(t *timeline.Timeline) map[string]string {
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
		"processes":   units.CountWithNoun(int64(len(t.Facts.Processes)), "process"),
		"ranks":       t.ListRanks(),
		"complete":    m.Complete,
	}
}

// countMatchingLaunches returns the number of launches of kernels whose name matches, plus the
// number of graph launches if the name of the driver function matches.
func countMatchingLaunches(t *timeline.Timeline, kernel *regexp.Regexp, f *query.Filter) (int64, error) {
	u := calls.NewCallCounter(t, f)
	if err := u.CountRecording(); err != nil {
		return 0, err
	}
	var n int64
	for name, s := range u.Kernels {
		if kernel.MatchString(name) {
			n += s.Calls - s.Captured - s.Errors
		}
	}
	for name, s := range u.Calls {
		if name.Kind == format.KindLaunch && catalog.BaseFunctionName(name.Name) == "cuGraphLaunch" &&
			kernel.MatchString(name.Name) {
			n += s.Calls - s.Captured - s.Errors
		}
	}
	return n, nil
}

// label returns the path of the recording and the length of its window.
func (s *Side) label() string { return s.Path + ", " + units.FormatDuration(s.report.Window.DurNs()) }

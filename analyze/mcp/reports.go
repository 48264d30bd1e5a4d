package mcp

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/export/digest"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits of reports.
const (
	defaultTop = 20
	maxTop     = 1000
	maxFrames  = 12 // of a stack
	// maxPattern is the largest length of a regular expression.
	maxPattern = 500
)

// open opens a recording and calls use with it and with the filter that the arguments describe. It closes the
// recording when use returns.
func (s *Server) open(
	ctx context.Context,
	a *scopeArguments,
	use func(*timeline.Timeline, query.Filter) (string, error),
) (string, error) {
	return s.work.do(ctx, func() (string, error) {
		rec, err := format.OpenIn(ctx, s.root, a.Recording)
		if err != nil {
			return "", explainOpen(a.Recording, err)
		}
		defer rec.Close()
		t, err := timeline.Open(rec)
		if err != nil {
			return "", explainOpen(a.Recording, err)
		}
		filter, err := a.filter(t)
		if err != nil {
			return "", err
		}
		return use(t, filter)
	})
}

// filter returns the window and the processes that the arguments select.
func (a *scopeArguments) filter(t *timeline.Timeline) (f query.Filter, err error) {
	f.Pids, f.Devices = a.Pids, a.Devices
	for _, bound := range []struct {
		name, text string
		ns         *int64
	}{{"from", a.From, &f.FromNs}, {"to", a.To, &f.ToNs}} {
		if bound.text == "" {
			continue
		}
		ns, err := query.ParseTime(bound.text, t.RecordingWindow())
		if err != nil {
			return f, fmt.Errorf("%s: %w", bound.name, err)
		}
		*bound.ns = max(1, ns)
	}
	if f.FromNs != 0 && f.ToNs != 0 && f.FromNs > f.ToNs {
		return f, fmt.Errorf("from %s is after to %s", a.From, a.To)
	}
	t.RestrictProcesses(&f, timeline.ProcessFilter{Ranks: a.Ranks})
	return f, nil
}

// limit returns the largest length of the answer.
func (s *Server) limit(a *scopeArguments) int {
	if a.MaxChars == 0 {
		return s.maxChars
	}
	return max(digest.MinMaxChars, min(a.MaxChars, s.maxChars))
}

// digest is the tool digest.
func (s *Server) digest(
	ctx context.Context,
	_ *mcp.CallToolRequest,
	a digestArguments,
) (*mcp.CallToolResult, any, error) {
	text, err := s.open(ctx, &a.scopeArguments, func(t *timeline.Timeline, f query.Filter) (string, error) {
		var b bytes.Buffer
		_, err := digest.Write(t, &b, a.Format, s.limit(&a.scopeArguments), digest.Options{
			Filter: f, Name: t.Rec.Path, Flags: a.flags(),
		})
		return b.String(), err
	})
	if err != nil {
		return nil, nil, describeError(err)
	}
	return answer(text), nil, nil
}

// flags returns the window and the filter as flags of gpurec analyze.
func (a *scopeArguments) flags() (words []string) {
	for _, bound := range [][2]string{{"--from", a.From}, {"--to", a.To}} {
		if bound[1] != "" {
			words = append(words, bound[0], bound[1])
		}
	}
	for _, list := range []struct {
		flag    string
		numbers []int32
	}{{"--pid", a.Pids}, {"--rank", a.Ranks}, {"--device", a.Devices}} {
		for _, n := range list.numbers {
			words = append(words, list.flag, strconv.Itoa(int(n)))
		}
	}
	return words
}

// report is the tool report.
func (s *Server) report(
	ctx context.Context,
	_ *mcp.CallToolRequest,
	a reportArguments,
) (*mcp.CallToolResult, any, error) {
	text, err := s.open(ctx, &a.scopeArguments, func(t *timeline.Timeline, f query.Filter) (string, error) {
		opt, err := a.options(f)
		if err != nil {
			return "", err
		}
		run := analyze.FindReport(a.Report)
		if run == nil {
			return "", fmt.Errorf("there is no report %s", a.Report)
		}
		r, err := run.Run(t, opt)
		if err != nil {
			return "", err
		}
		cleanReport(r, a.Stacks)
		return fitReport(r, a.Format, s.limit(&a.scopeArguments))
	})
	if err != nil {
		return nil, nil, describeError(err)
	}
	return answer(text), nil, nil
}

// options returns the options of a report.
func (a *reportArguments) options(f query.Filter) (opt query.Options, err error) {
	f.Tids, f.MinBytes = a.Tids, a.MinBytes
	for _, text := range a.Streams {
		stream, err := query.ParseStream(text)
		if err != nil {
			return opt, fmt.Errorf("streams: %w", err)
		}
		f.Streams = append(f.Streams, stream)
	}
	if a.Kernel != "" {
		if len(a.Kernel) > maxPattern {
			return opt, fmt.Errorf("kernel: a regular expression has at most %d characters", maxPattern)
		}
		if f.Kernel, err = regexp.Compile(a.Kernel); err != nil {
			return opt, fmt.Errorf("kernel: %w", err)
		}
	}
	opt = query.Options{Filter: f, GroupBy: a.GroupBy, Top: defaultTop, Sort: a.Sort, MaxFrames: maxFrames}
	if a.Top != nil {
		opt.Top = *a.Top
	}
	return opt, nil
}

// describeReports lists the reports with their subjects.
func describeReports() string {
	var names []string
	for _, r := range analyze.Reports {
		name := r.Name
		if r.Page.Title != "" {
			name += " (" + r.Page.Title + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// explain is the tool explain.
func (s *Server) explain(
	_ context.Context,
	_ *mcp.CallToolRequest,
	a explainArguments,
) (*mcp.CallToolResult, any, error) {
	r := analyze.FindReport(a.Report)
	if r == nil {
		return nil, nil, describeError(fmt.Errorf("there is no report %s", a.Report))
	}
	text, err := explainReport(r, a.Key, s.maxChars)
	if err != nil {
		return nil, nil, describeError(err)
	}
	return answer(text), nil, nil
}

package frag

import (
	"errors"
	"io"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// Definition declares the report frag.
var Definition = report.Definition{
	Name:  "frag",
	Short: "Show reserved memory that cannot be used, and the blocks that strand it",
	Long: `frag shows fragmentation of GPU memory: in segments of PyTorch's caching allocator, in
partly mapped address ranges, and in memory pools. For each it shows:

  - the unused bytes, and why they cannot go back to the driver
  - the call sites of the blocks that strand them
  - the bytes that expandable segments would save
  - the change over time, and an address map

Holes between plain driver allocations are not fragmentation: they take addresses, not
memory. frag does not count them.`,
	Example: `  gpurec analyze frag run.parquet
  gpurec analyze frag --request 512MiB --at end run.parquet
  gpurec analyze frag --svg map.svg --fail-on 'fragmented>0' run.parquet`,

	Question:   "Why can reserved memory not be used?",
	Subject:    report.SubjectMemory,
	IsFeatured: true,

	Flags: report.Flags{
		Calls:     true,
		Frames:    true,
		Sort:      "sort the first table by `COLUMN` (default: stranded bytes)",
		AllFrames: "show all frames of every stack",
		Usage:     map[string]string{"min-bytes": "ignore segments and blocks that reserve or strand less than `SIZE`"},
		Hidden:    []string{"tid", "stream"},
		Values:    map[string][]string{"at": {"worst", "end"}},
		Unsupported: []report.UnsupportedFlags{
			{
				Names: []string{"tid", "stream"},
				Error: "frag does not support --tid and --stream: segments belong to a process and device",
			},
			{
				Names: []string{"svg"}, When: report.InDiff,
				Error: "diff does not support --svg, which draws the maps of one recording",
			},
		},
	},
	Sections:  Sections,
	Page:      HTMLSection,
	Run:       Run,
	Collect:   Collect,
	Configure: configure,
}

// ownFlags are the values of the flags that only this report has.
type ownFlags struct {
	request   int64  // bytes
	at        string // moment
	svg       string // path of the maps, or ""
	svgExists bool   // the file of svg may exist
}

// configure registers --request, --at, --svg and --force.
func configure(flags report.FlagSet) report.Runner {
	var f ownFlags
	flags.SizeVar(&f.request, "request", "0", "show the free bytes usable for a request of `SIZE`; 0: the largest "+
		"request")
	flags.StringVar(&f.at, "at", "worst", "report the state at `TIME`: worst (most stranded), end, an offset (12s) "+
		"or RFC 3339")
	flags.StringVar(&f.svg, "svg", "", "write the address maps to `FILE` as SVG")
	flags.BoolVar(&f.svgExists, "force", false, "replace the file of --svg if it exists")
	flags.Check(func() error {
		if f.svg == "-" {
			return errors.New("--svg - is not supported: the report goes to standard output; use --svg FILE")
		}
		return nil
	})
	return report.Runner{Run: f.run}
}

// run computes the report with the values of f. With --svg the report has a file with the address maps.
func (f *ownFlags) run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	o := Options{Options: opt, Request: f.request, Maps: opt.ForText}
	var err error
	o.At, o.AtNs, err = query.ParseMoment(strings.Replace(f.at, "worst", "peak", 1), t.RecordingWindow())
	if err != nil {
		return nil, report.FlagErrorf("--at: %w", err)
	}
	r, maps, err := RunWithOptions(t, o)
	if err != nil || f.svg == "" {
		return r, err
	}
	r.Files = append(r.Files, report.OutputFile{
		Flag: "--svg", Path: f.svg, MayExist: f.svgExists,
		Content:   units.FormatCount(int64(len(maps))) + " address maps",
		WriteFunc: func(w io.Writer) error { return WriteMapsSVG(w, maps, t.RecordingWindow().FromNs) },
	})
	return r, nil
}

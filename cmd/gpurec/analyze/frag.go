package analyze

import (
	"io"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frag"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/size"
	"github.com/spf13/cobra"
)

func init() { subcommands["frag"] = newFrag }

func newFrag() *cobra.Command {
	f := &reportFlags{command: "frag"}
	var at, request string
	svg := outputFlags{flag: "--svg"}
	cmd := &cobra.Command{
		Use:   "frag [FILE]",
		Short: "Show where reserved memory cannot be used, and which blocks keep it",
		Long: `frag shows where memory really can fragment: in segments of PyTorch's caching allocator,
in addresses that are reserved and mapped in parts, in memory pools. For each it tells
what is unused and why it cannot go back to the driver, which places allocated the blocks
that keep it, what expandable segments would save, and how that moves over time, with an
address map. Holes between plain allocations are addresses, not memory: frag leaves them
out.`,
		Example: `  gpurec analyze frag run.parquet
  gpurec analyze frag --request 512MiB --at end run.parquet
  gpurec analyze frag --svg map.svg --fail-on 'fragmented>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			bytes, err := size.Parse(request)
			if err != nil {
				return message.Usagef(f.help(), "--request: %w", err)
			}
			if len(f.opt.Tids)+len(f.streams) > 0 {
				return message.Usagef(f.help(), "segments belong to a process and device: frag knows no --tid and "+
					"--stream")
			}
			if svg.path == "-" {
				return message.Usagef(f.help(), "--svg needs a file: standard output is for the report")
			}
			if svg.path != "" && f.against.path != "" {
				return message.Usagef(f.help(), "--svg draws the maps of one recording, diff compares two")
			}
			return f.report(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				o := frag.Options{Options: opt, Request: bytes, Maps: f.render.Format == "table"}
				var err error
				if o.At, o.AtNs, err = f.moment(strings.Replace(at, "worst", "peak", 1), t); err != nil {
					return nil, err
				}
				r, maps, err := frag.RunWith(t, o)
				if err != nil || svg.path == "" {
					return r, err
				}
				written, err := svg.write(
					"",
					"",
					func(w io.Writer) error { return frag.WriteMaps(w, maps, t.Recording().FromNs) },
				)
				if err != nil {
					return nil, err
				}
				message.Notef("%s -> %s", units.Count(int64(len(maps)))+" address maps", written)
				return r, nil
			})
		},
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	flags.Lookup("min-bytes").Usage = "leave out what reserves or keeps less than `SIZE`"
	_, _ = flags.MarkHidden("tid"), flags.MarkHidden("stream") // the flags exist
	flags.StringVar(&request, "request", "0", "tell how much free memory could serve a request of `SIZE`; 0: the "+
		"largest one seen")
	flags.StringVar(&at, "at", "worst", "tell of `TIME`: worst (most kept by blocks), end, an offset such as 12s, "+
		"or RFC 3339")
	flags.StringVar(&svg.path, "svg", "", "draw the address maps into `FILE`")
	flags.BoolVar(&svg.force, "force", false, "replace the file of --svg if it exists")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort the first table by `COLUMN` (default: bytes kept)")
	f.addFrames(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "fold nothing and show all frames")
	// the flag exists
	_ = cmd.RegisterFlagCompletionFunc(
		"at",
		cobra.FixedCompletions([]string{"worst", "end"}, cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

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

func init() { subcommandConstructors["frag"] = newFragCommand }

func newFragCommand() *cobra.Command {
	f := &reportFlags{command: "frag"}
	var at, request string
	svg := outputFlags{flag: "--svg"}
	cmd := &cobra.Command{
		Use:   "frag [FILE]",
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
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			bytes, err := size.Parse(request)
			if err != nil {
				return message.Usagef(f.helpCommand(), "--request: %w", err)
			}
			if len(f.opt.Tids)+len(f.streams) > 0 {
				return message.Usagef(
					f.helpCommand(),
					"frag does not support --tid and --stream: segments belong to a process "+
						"and device",
				)
			}
			if svg.path == "-" {
				return message.Usagef(
					f.helpCommand(),
					"--svg - is not supported: the report goes to standard output; use --svg FILE",
				)
			}
			if svg.path != "" && f.before.path != "" {
				return message.Usagef(
					f.helpCommand(),
					"diff does not support --svg, which draws the maps of one recording",
				)
			}
			return f.runReport(args, func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
				o := frag.Options{Options: opt, Request: bytes, Maps: f.render.Format == "table"}
				var err error
				if o.At, o.AtNs, err = f.parseMoment(strings.Replace(at, "worst", "peak", 1), t); err != nil {
					return nil, err
				}
				r, maps, err := frag.RunWithOptions(t, o)
				if err != nil || svg.path == "" {
					return r, err
				}
				written, err := svg.writeFile(
					"",
					"",
					func(w io.Writer) error { return frag.WriteMapsSVG(w, maps, t.RecordingWindow().FromNs) },
				)
				if err != nil {
					return nil, err
				}
				message.Notef("%s -> %s", units.FormatCount(int64(len(maps)))+" address maps", written)
				return r, nil
			})
		},
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	flags.Lookup("min-bytes").Usage = "ignore segments and blocks that reserve or strand less than `SIZE`"
	_, _ = flags.MarkHidden("tid"), flags.MarkHidden("stream") // MarkHidden fails only for an unknown flag
	flags.StringVar(&request, "request", "0", "show the free bytes usable for a request of `SIZE`; 0: the largest "+
		"request")
	flags.StringVar(&at, "at", "worst", "report the state at `TIME`: worst (most stranded), end, an offset (12s) "+
		"or RFC 3339")
	flags.StringVar(&svg.path, "svg", "", "write the address maps to `FILE` as SVG")
	flags.BoolVar(&svg.force, "force", false, "replace the file of --svg if it exists")
	flags.StringVar(&f.opt.Sort, "sort", "", "sort the first table by `COLUMN` (default: stranded bytes)")
	f.addFrameFlags(flags)
	flags.BoolVar(&f.opt.AllFrames, "all-frames", false, "show all frames of every stack")
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = cmd.RegisterFlagCompletionFunc(
		"at",
		cobra.FixedCompletions([]string{"worst", "end"}, cobra.ShellCompDirectiveNoFileComp),
	)
	return cmd
}

package main

import (
	"compress/gzip"
	"io"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/spf13/cobra"
)

func newPerfetto() *cobra.Command {
	f := &analyzeFlags{command: "perfetto"}
	var out outputFlags
	var slices int64
	cmd := &cobra.Command{
		Use:   "perfetto [FILE]",
		Short: "Write a trace for ui.perfetto.dev",
		Long: `perfetto writes every call as a slice on its thread, with arguments, stack and result,
the live memory of every GPU, and the samples of NVML, as a trace that
ui.perfetto.dev opens (in the browser: nothing is sent anywhere). A name that ends
in .gz is compressed.`,
		Example: `  gpurec analyze perfetto run.parquet
  gpurec analyze perfetto --from 10s --to 12s -o part.pftrace.gz run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if slices < 0 {
				return usagef(f.help(), "--max-slices cannot be negative")
			}
			return f.open(args, func(path string, t *analyze.Timeline) error { return f.perfetto(path, t, &out, slices) })
		},
	}
	f.addFilter(cmd.Flags())
	f.addKernel(cmd.Flags())
	f.source.add(cmd.Flags())
	cmd.Flags().Int64Var(&slices, "max-slices", analyze.DefaultMaxSlices, "write at most `N` slices and instants; 0: all")
	out.add(cmd.Flags(), ".pftrace")
	return cmd
}

func (f *analyzeFlags) perfetto(path string, t *analyze.Timeline, out *outputFlags, slices int64) error {
	var stats *analyze.PerfettoStats
	written, err := out.write(path, ".pftrace", func(w io.Writer) (err error) {
		opt := analyze.PerfettoOptions{Filter: f.opt.Filter, MaxSlices: slices}
		if !strings.HasSuffix(out.path, ".gz") {
			stats, err = t.Perfetto(w, opt)
			return err
		}
		zip := gzip.NewWriter(w)
		if stats, err = t.Perfetto(zip, opt); err != nil {
			return err
		}
		return zip.Close()
	})
	if err != nil {
		return err
	}
	notef("quality: %s", &stats.Quality)
	if stats.LeftOut > 0 {
		from := analyze.Offset(stats.LeftOutNs, t.Recording())
		warningf("%s calls from %s on are left out: more than %s slices", count(stats.LeftOut), from, count(slices))
		hintf("gpurec analyze perfetto --from %s %s -o FILE", from, path)
	}
	notef("%s calls -> %s; next: open it at https://ui.perfetto.dev", count(stats.Calls), written)
	return f.exported(&analyze.Report{Command: f.command, Quality: stats.Quality, NoMatch: stats.NoMatch})
}

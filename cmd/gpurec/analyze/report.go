package analyze

import (
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func newPageCommand() *cobra.Command {
	f := &reportFlags{command: "report", values: html.Sections}
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "report [FILE]",
		Short: "Write all reports as one HTML page with charts, for a browser",
		Long: `report writes one HTML page. It starts with the findings of "gpurec analyze rules". It
then shows memory over time, leaks, a flame graph, address maps, CUDA calls, kernels, GPU
samples, Xids and gaps in the recording.

The page is one file without external resources. It stays below a few megabytes for
recordings of any length, so that you can mail it or attach it to a ticket.`,
		Example: `  gpurec analyze report run.parquet                    # writes run.html
  gpurec analyze report -o report.html --force run.parquet
  gpurec analyze report --from 10s --to 20s -o part.html run.parquet
  gpurec analyze report --suppressions known.supp run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.openRecording(
				args,
				func(path string, t *timeline.Timeline) error { return f.writeHTML(path, t, &out) },
			)
		},
	}
	f.addFilterFlags(cmd.Flags())
	f.addKernelFlag(cmd.Flags())
	f.addSuppressionsFlag(cmd.Flags())
	cmd.Flags().IntVar(&f.opt.Top, "top", html.DefaultTableRows, "maximum number of rows in a table, up to 500")
	f.addHideFramesFlag(cmd.Flags(), "also hide frames that match `REGEX`; none: no default hiding; repeatable")
	f.source.addFlags(cmd.Flags())
	out.addFlags(cmd.Flags(), ".html")
	return cmd
}

// pageMemoryBytes is the memory of a page with GPU times from which on the garbage collector works harder. The
// process took 130 MiB more than that with 100 million events.
const pageMemoryBytes = 224 << 20

// limitPageMemory makes the garbage collector keep the memory of a page with GPU times small: several of its reports
// run at a time. The variable GOMEMLIMIT has precedence.
func limitPageMemory(t *timeline.Timeline) {
	if len(t.Facts.Channels) > 0 && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(pageMemoryBytes)
	}
}

// writeHTML writes the page and prints the number of findings.
func (f *reportFlags) writeHTML(path string, t *timeline.Timeline, out *outputFlags) error {
	limitPageMemory(t)
	var stats *html.PageStats
	written, err := out.writeFile(path, ".html", func(w io.Writer) (err error) {
		stats, err = html.WritePage(
			t,
			w,
			html.Options{Options: f.opt, Name: filepath.Base(path), Progress: newProgressPrinter()},
		)
		return err
	})
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &stats.Quality)
	found := "no findings"
	switch {
	case stats.Hits == 1:
		found = "1 finding"
	case stats.Hits > 1:
		found = units.FormatCount(int64(stats.Hits)) + " findings"
	}
	message.Notef("%s -> %s (%s); next: open the file in a browser", found, written, units.FormatBytes(stats.Bytes))
	return f.finishExport(
		&report.Report{Command: f.command, Totals: stats.Totals, Quality: stats.Quality, NoMatch: stats.NoMatch},
	)
}

// firstProgressDelay is the time before the first progress message.
const firstProgressDelay = 2 * time.Second

// newProgressPrinter returns a function that prints the name of a step as a progress message after
// firstProgressDelay. It returns nil if standard error is not a terminal.
func newProgressPrinter() func(step string) {
	began := time.Now()
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return func(step string) {
		if time.Since(began) > firstProgressDelay {
			message.Notef("reading: %s", strings.TrimSpace(step))
		}
	}
}

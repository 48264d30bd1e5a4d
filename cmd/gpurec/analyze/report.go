package analyze

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	htmlpkg "github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func init() { subcommands["report"] = newReport }

func newReport() *cobra.Command {
	f := &reportFlags{command: "report", values: htmlpkg.Sections}
	var out outputFlags
	cmd := &cobra.Command{
		Use:   "report [FILE]",
		Short: "Write all reports as one HTML page with charts, for a browser",
		Long: `report writes one page: first what the rules found, as analyze rules tells it, memory over time with who held it at any moment,
leaks, a flame graph, address maps, tables of calls and kernels, the GPUs' samples, Xids,
and what the recording does not know. The file needs nothing else, asks no network for
anything, and stays below some megabytes however long the recording: mail it, attach it
to a ticket, print it.`,
		Example: `  gpurec analyze report run.parquet                    # writes run.html
  gpurec analyze report -o report.html --force run.parquet
  gpurec analyze report --from 10s --to 20s -o part.html run.parquet
  gpurec analyze report --suppressions known.supp run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return f.open(args, func(path string, t *timeline.Timeline) error { return f.html(path, t, &out) })
		},
	}
	f.addFilter(cmd.Flags())
	f.addKernel(cmd.Flags())
	f.addSuppressions(cmd.Flags())
	cmd.Flags().IntVar(&f.opt.Top, "top", htmlpkg.DefaultRows, "rows of a table, at most 500")
	f.addHideFrames(cmd.Flags(), "leave out frames whose function, module or file matches `REGEX`, besides those of "+
		"CUDA, CPython, libc and the inside of PyTorch; none: only what is named here")
	f.source.add(cmd.Flags())
	out.add(cmd.Flags(), ".html")
	return cmd
}

func (f *reportFlags) html(path string, t *timeline.Timeline, out *outputFlags) error {
	var stats *htmlpkg.Stats
	written, err := out.write(path, ".html", func(w io.Writer) (err error) {
		stats, err = htmlpkg.Write(
			t,
			w,
			htmlpkg.Options{Options: f.opt, Name: filepath.Base(path), Progress: progress()},
		)
		return err
	})
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &stats.Quality)
	found := "nothing stands out"
	switch {
	case stats.Hits == 1:
		found = "1 verdict to look at"
	case stats.Hits > 1:
		found = units.Count(int64(stats.Hits)) + " verdicts to look at"
	}
	message.Notef("%s -> %s (%s); next: open it in a browser", found, written, units.Bytes(stats.Bytes))
	return f.exported(
		&report.Report{Command: f.command, Totals: stats.Totals, Quality: stats.Quality, NoMatch: stats.NoMatch},
	)
}

// quietFor is how long work goes on before it is talked about.
const quietFor = 2 * time.Second

// progress returns a function that tells of steps once the work has taken a while, if
// somebody is there to read it.
func progress() func(step string) {
	began := time.Now()
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return nil
	}
	return func(step string) {
		if time.Since(began) > quietFor {
			message.Notef("reading: %s", strings.TrimSpace(step))
		}
	}
}

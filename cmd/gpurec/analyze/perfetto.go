package analyze

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format/output"
	"github.com/spf13/cobra"
)

// traceFlags holds the flags of "gpurec analyze perfetto".
type traceFlags struct {
	*reportFlags
	out    outputFlags
	slices int64
	split  bool
}

func newPerfettoCommand() *cobra.Command {
	f := &traceFlags{reportFlags: &reportFlags{command: "perfetto", values: perfetto.Sections}}
	cmd := &cobra.Command{
		Use:   "perfetto [FILE]",
		Short: "Write a trace for ui.perfetto.dev",
		Long: `perfetto writes a trace for ui.perfetto.dev, which runs in the browser and uploads
nothing. The trace has a slice for every call on its thread, with arguments, stack and
result. It also shows kernel launches and copies of every stream, live memory of every
GPU, and NVML samples. perfetto compresses a file whose name ends in .gz.

The viewer is slow with millions of slices. perfetto omits the calls beyond --max-slices
and prints their number. With --split it writes them to the files NAME.2.pftrace,
NAME.3.pftrace and so on. A call that spans two files is in both.`,
		Example: `  gpurec analyze perfetto run.parquet
  gpurec analyze perfetto --from 10s --to 12s -o part.pftrace.gz run.parquet
  gpurec analyze perfetto --split --max-slices 1000000 run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case f.slices < 0:
				return message.Usagef(f.helpCommand(), "--max-slices must not be negative")
			case f.split && f.slices == 0:
				return message.Usagef(
					f.helpCommand(),
					"--split needs --max-slices above 0: the number of slices per file",
				)
			case f.split && f.out.path == "-":
				return message.Usagef(
					f.helpCommand(),
					"--split cannot write several files to standard output: use -o FILE",
				)
			}
			return f.openRecording(args, f.writePerfetto)
		},
	}
	f.addFilterFlags(cmd.Flags())
	f.addKernelFlag(cmd.Flags())
	f.source.addFlags(cmd.Flags())
	cmd.Flags().Int64Var(&f.slices, "max-slices", perfetto.DefaultMaxSlices, "maximum number `N` of call "+
		"slices and instants; 0: all")
	cmd.Flags().BoolVar(&f.split, "split", false, "write calls beyond --max-slices to further files")
	f.out.addFlags(cmd.Flags(), ".pftrace")
	return cmd
}

// writePerfetto writes the trace of a recording and prints the number of calls and the next step.
func (f *traceFlags) writePerfetto(path string, t *timeline.Timeline) error {
	parts := &traceFiles{out: &f.out, name: f.out.outputPath(path, ".pftrace")}
	opt := perfetto.Options{Filter: f.opt.Filter, MaxSlices: f.slices}
	if f.split {
		opt.Next = parts.createNextFile
		if err := parts.checkPaths(); err != nil {
			return err
		}
	}
	stats, err := parts.writeFiles(
		func(w io.Writer) (*perfetto.TraceStats, error) { return perfetto.WriteTrace(t, w, opt) },
	)
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &stats.Quality)
	if stats.LeftOut > 0 {
		from := query.FormatOffset(stats.LeftOutNs, t.RecordingWindow())
		message.Warningf(
			"the trace omits %s calls from %s on: it is limited to %s slices; --split writes all calls",
			units.FormatCount(stats.LeftOut),
			from,
			units.FormatCount(f.slices),
		)
		message.Hintf("gpurec analyze perfetto --from %s %s -o FILE", from, path)
	}
	if stats.LeftOutHost > 0 {
		message.Warningf(
			"the trace omits the last %s states of threads: it is limited to %s slices; --split writes all",
			units.FormatCount(stats.LeftOutHost),
			units.FormatCount(f.slices),
		)
	}
	next := "open the file"
	if stats.Parts > 1 {
		next = "open the files one by one"
	}
	message.Notef("%s calls -> %s; next: %s at https://ui.perfetto.dev", units.FormatCount(stats.Calls), parts, next)
	return f.finishExport(&report.Report{Command: f.command, Quality: stats.Quality, NoMatch: stats.NoMatch})
}

// traceFiles writes a trace to one or more files.
type traceFiles struct {
	out     *outputFlags
	name    string   // path of the first file
	written []string // paths of the complete files
	file    *output.File
	zip     *gzip.Writer
}

// writeFiles calls trace to write the files, or standard output for -o -. On an error it deletes
// all files that it wrote.
func (f *traceFiles) writeFiles(
	trace func(io.Writer) (*perfetto.TraceStats, error),
) (stats *perfetto.TraceStats, err error) {
	if f.out.path == "-" {
		f.written = []string{"standard output"}
		_, err = f.out.writeFile("", "", func(w io.Writer) (err error) {
			stats, err = trace(w)
			return err
		})
		return stats, err
	}
	first, err := f.createNextFile()
	if err != nil {
		return nil, err
	}
	if stats, err = trace(first); err == nil {
		err = f.closeFile()
	}
	if err != nil {
		f.deleteFiles()
		return nil, fmt.Errorf("write %s: %w", f.name, err)
	}
	return stats, nil
}

// deleteFiles deletes all files written so far, the unfinished one included.
func (f *traceFiles) deleteFiles() {
	if f.file != nil {
		f.file.Discard()
	}
	for _, name := range f.written {
		os.Remove(name)
	}
}

// numberedPath returns the path of the file with number n: for n = 2, run.pftrace.gz →
// run.2.pftrace.gz.
func (f *traceFiles) numberedPath(n string) string {
	base, zipped := strings.CutSuffix(f.name, ".gz")
	ext := filepath.Ext(base)
	name := strings.TrimSuffix(base, ext) + "." + n + ext
	if zipped {
		name += ".gz"
	}
	return name
}

// checkPaths returns an error if a file of the trace exists and may not be replaced. The number of
// files is not known yet, so check rejects every existing file with the name of a later part.
func (f *traceFiles) checkPaths() error {
	if err := f.out.checkPath(f.name); err != nil {
		return err
	}
	before, after, _ := strings.Cut(f.numberedPath("\x00"), "\x00")
	before = filepath.Base(before)
	entries, err := os.ReadDir(filepath.Dir(f.name))
	if err != nil {
		return err
	}
	for _, e := range entries {
		number, isPart := strings.CutPrefix(e.Name(), before)
		number, hasEnd := strings.CutSuffix(number, after)
		if n, err := strconv.Atoi(number); !isPart || !hasEnd || err != nil || n < 2 {
			continue
		}
		if err := f.out.checkPath(f.numberedPath(number)); err != nil {
			return err
		}
	}
	return nil
}

// createNextFile completes the current file and creates the next one.
func (f *traceFiles) createNextFile() (io.Writer, error) {
	if err := f.closeFile(); err != nil {
		return nil, err
	}
	name := f.name
	if n := len(f.written) + 1; n > 1 {
		name = f.numberedPath(strconv.Itoa(n))
	}
	file, err := f.out.createFile(name)
	if err != nil {
		return nil, err
	}
	f.file = file
	if !strings.HasSuffix(name, ".gz") {
		return file, nil
	}
	if f.zip == nil {
		// NewWriterLevel fails only for an invalid level. The default level takes 5 times as long
		// for files that are 30 % smaller.
		f.zip, _ = gzip.NewWriterLevel(file, gzip.BestSpeed)
	} else {
		f.zip.Reset(file)
	}
	return f.zip, nil
}

// closeFile completes the current file and moves it to its path.
func (f *traceFiles) closeFile() error {
	if f.file == nil {
		return nil
	}
	file := f.file
	f.file = nil
	if f.zip != nil {
		if err := f.zip.Close(); err != nil {
			file.Discard()
			return err
		}
	}
	if err := file.Commit(); err != nil {
		return f.out.explainError(err)
	}
	f.written = append(f.written, file.Path())
	return nil
}

// String returns the path of the file, or the first and the last path and the number of files.
func (f *traceFiles) String() string {
	if n := len(f.written); n > 1 {
		return fmt.Sprintf("%s … %s (%d files)", f.written[0], f.written[n-1], n)
	}
	return f.written[0]
}

package main

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/format"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// outputFlags say where a file for another tool goes.
type outputFlags struct {
	path  string
	force bool
}

func (o *outputFlags) add(flags *pflag.FlagSet, suffix string) {
	flags.StringVarP(&o.path, "output", "o", "", "write to `FILE`; - is standard output (default: the recording's name with "+suffix+")")
	flags.BoolVar(&o.force, "force", false, "replace FILE if it exists")
}

// write creates the file, which belongs to the user behind sudo, and has it filled.
// What was begun is removed if that fails. It returns the file's name.
func (o *outputFlags) write(recording, suffix string, fill func(io.Writer) error) (path string, err error) {
	if o.path == "-" {
		if term.IsTerminal(int(os.Stdout.Fd())) {
			return "", usagef("gpurec analyze … -o FILE", "the output is binary: no terminal can show it")
		}
		return "standard output", fill(os.Stdout)
	}
	path = o.path
	if path == "" {
		path = strings.TrimSuffix(strings.TrimSuffix(recording, format.SegmentSuffix), ".parquet") + suffix
	}
	mode := os.O_CREATE | os.O_WRONLY | os.O_EXCL
	if o.force {
		mode = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
	}
	file, err := os.OpenFile(path, mode, 0o600)
	if errors.Is(err, os.ErrExist) {
		return "", &hintedError{fmt.Errorf("%s exists", path), "the same command with --force, or with -o OTHER"}
	}
	if err != nil {
		return "", err
	}
	if owner := sudoOwner(); owner.Set {
		_ = os.Lchown(path, owner.UID, owner.GID) // the file is of use without it
	}
	if err := errors.Join(fill(file), file.Close()); err != nil {
		os.Remove(path)
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}

func newPprof() *cobra.Command {
	f := &analyzeFlags{command: "pprof"}
	var out outputFlags
	var kind string
	cmd := &cobra.Command{
		Use:   "pprof [FILE]",
		Short: "Write a profile for go tool pprof and other viewers of pprof files",
		Long: `pprof writes the stacks that allocated memory as a profile for pprof, which shows them
as flame graphs and tables, compares two of them, and more.`,
		Example: `  gpurec analyze pprof run.parquet && go tool pprof -http=: run.pb.gz
  gpurec analyze pprof -o - run.parquet > heap.pb.gz`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if kind != "heap" {
				return usagef(f.help(), "--type %s: there is heap", kind)
			}
			return f.open(args, func(path string, t *analyze.Timeline) error { return f.pprof(path, t, &out) })
		},
	}
	f.addFilter(cmd.Flags())
	cmd.Flags().StringVar(&kind, "type", "heap", "`WHAT` to profile: heap")
	f.addHideFrames(cmd.Flags(), "leave out frames of CUDA, CPython, libc and the inside of PyTorch, and those whose function, module or file matches `REGEX`; default: only the former; none: only the latter")
	f.source.add(cmd.Flags())
	out.add(cmd.Flags(), ".pb.gz")
	return cmd
}

func (f *analyzeFlags) pprof(path string, t *analyze.Timeline, out *outputFlags) error {
	p, quality, noMatch, err := t.HeapProfile(f.opt)
	if err != nil {
		return explainOpen(path, err)
	}
	written, err := out.write(path, ".pb.gz", p.Write)
	if err != nil {
		return err
	}
	notef("quality: %s", &quality)
	notef("%s samples -> %s; next: go tool pprof -http=: %s", count(int64(len(p.Sample))), written, written)
	return f.exported(&analyze.Report{Command: f.command, Quality: quality, NoMatch: noMatch})
}

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

// exported ends a command that wrote a file: --fail-on sees the recording's quality.
func (f *analyzeFlags) exported(r *analyze.Report) error {
	failed, err := f.failed(r)
	if err != nil {
		return err
	}
	return f.finish(r, failed)
}

package analyze

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	"github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// profileFlags holds the flags of the subcommands pprof and folded, which write the same profiles.
type profileFlags struct {
	*reportFlags
	options pprof.Options
	at      string
	out     outputFlags
}

// addFlags adds the common flags of pprof and folded.
func (f *profileFlags) addFlags(flags *pflag.FlagSet) {
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	types, roots := pprof.ListProfileTypes(), pprof.ListRootKinds()
	flags.StringVar(&f.options.Type, "type", types[0], "profile `TYPE`: "+strings.Join(types, ", "))
	flags.StringVar(&f.at, "at", "end", "for heap and allocs, `TIME` of the live memory: end, peak, an offset (12s) "+
		"or RFC 3339")
	flags.StringVar(
		&f.options.RootBy,
		"root-by",
		"",
		"add a root frame for the `KEY` of each stack: "+strings.Join(roots, ", "),
	)
	f.addHideFramesFlag(flags, "also hide frames that match `REGEX`; none: no default hiding; repeatable")
	f.source.addFlags(flags)
}

// checkFlags returns a usage error for a wrong --type, --root-by or --at.
func (f *profileFlags) checkFlags() error {
	for _, c := range []struct {
		flag, value string
		known       []string
	}{
		{"type", f.options.Type, pprof.ListProfileTypes()},
		{"root-by", f.options.RootBy, append(pprof.ListRootKinds(), "")},
	} {
		if !slices.Contains(c.known, c.value) {
			return message.Usagef(
				f.helpCommand(),
				"--%s %s: must be one of %s",
				c.flag,
				c.value,
				strings.TrimSuffix(strings.Join(c.known, ", "), ", "),
			)
		}
	}
	if isMemory := f.options.Type == "heap" || f.options.Type == "allocs"; !isMemory && f.at != "end" {
		return message.Usagef(
			f.helpCommand(),
			"--at %s needs --type heap or allocs; with --type %s use --from and --to",
			f.at,
			f.options.Type,
		)
	}
	return nil
}

// buildProfile builds the profile. The returned report holds only the recording's quality and, if
// no row matched the filter, the reason.
func (f *profileFlags) buildProfile(path string, t *timeline.Timeline) (*profile.Profile, *report.Report, error) {
	f.options.Options = f.opt
	var err error
	if f.options.At, f.options.AtNs, err = f.parseMoment(f.at, t); err != nil {
		return nil, nil, err
	}
	p, quality, noMatch, err := pprof.BuildProfile(t, f.options)
	switch {
	case errors.Is(err, pprof.NoHostRowsError{}):
		return nil, nil, message.WithHint(err, "gpurec record --host auto -p PID")
	case errors.Is(err, pprof.NoGPUTimesError{}):
		return nil, nil, message.WithHint(err, "gpurec record --gpu-time auto -p PID")
	case err != nil:
		return nil, nil, message.ExplainOpen(path, err)
	}
	return p, &report.Report{Command: f.command, Quality: quality, NoMatch: noMatch}, nil
}

func newPprofCommand() *cobra.Command {
	f := &profileFlags{reportFlags: &reportFlags{command: "pprof", values: pprof.Sections}}
	var address string
	cmd := &cobra.Command{
		Use:   "pprof [FILE]",
		Short: "Write a profile for go tool pprof, or show it in the browser",
		Long: `pprof writes a profile for "go tool pprof", which draws flame graphs and compares
profiles. A profile counts, per stack, allocated memory (heap, allocs), kernel launches
(launches) or copies (copies). It can also sum up time in the CUDA driver (api-time) or
time spent waiting for the GPU (sync-time). These are times of CPU threads. The type
gpu-time is the estimated time of launches on the GPU, and needs GPU times.

The types cpu, off-cpu and host are about the threads themselves. They show estimated time
on a processor, measured time in waits by stack and reason, and both together. They need a
recording with --host auto.

With --http, pprof writes no file. It serves pprof's web pages until Ctrl-C. The address
:0 is a free port, reachable from this machine only.`,
		Example: `  gpurec analyze pprof run.parquet && go tool pprof -http=: run.pb.gz
  gpurec analyze pprof --http :0 --at peak run.parquet
  gpurec analyze pprof --type launches --root-by thread -o launches.pb.gz run.parquet
  gpurec analyze pprof -o - run.parquet > heap.pb.gz`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.checkFlags(); err != nil {
				return err
			}
			serving := cmd.Flags().Changed("http")
			if _, _, err := net.SplitHostPort(address); serving && err != nil {
				return message.Usagef(f.helpCommand(), "--http %s: must be HOST:PORT, or :0 for a free port", address)
			}
			if serving && f.out.path != "" {
				return message.Usagef(f.helpCommand(), "--http writes no file: remove -o %s", f.out.path)
			}
			return f.openRecording(args, func(path string, t *timeline.Timeline) error {
				if serving {
					return f.serveProfile(cmd.Context(), path, t, address)
				}
				return f.writePprof(path, t)
			})
		},
	}
	f.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&address, "http", "", "serve pprof's web pages at `HOST:PORT` (default HOST localhost; port "+
		"0: a free port)")
	f.out.addFlags(cmd.Flags(), ".pb.gz")
	return f.registerCompletions(cmd)
}

// registerCompletions registers the shell completion of --type, --root-by and --at. It returns cmd.
func (f *profileFlags) registerCompletions(cmd *cobra.Command) *cobra.Command {
	for flag, known := range map[string][]string{
		"type":    pprof.ListProfileTypes(),
		"root-by": pprof.ListRootKinds(),
		"at":      {"end", "peak"},
	} {
		// RegisterFlagCompletionFunc fails only for an unknown flag.
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

// writePprof writes the profile to a file, or to standard output.
func (f *profileFlags) writePprof(path string, t *timeline.Timeline) error {
	p, qualityReport, err := f.buildProfile(path, t)
	if err != nil {
		return err
	}
	suffix := ".pb.gz"
	if f.options.Type != "heap" {
		suffix = "." + f.options.Type + suffix
	}
	written, err := f.out.writeFile(path, suffix, p.Write)
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &qualityReport.Quality)
	message.Notef(
		"%s samples -> %s; next: go tool pprof -http=: %s",
		units.FormatCount(int64(len(p.Sample))),
		written,
		written,
	)
	return f.finishExport(qualityReport)
}

// serveProfile serves pprof's web pages of the profile until ctx ends or the user presses Ctrl-C.
func (f *profileFlags) serveProfile(ctx context.Context, path string, t *timeline.Timeline, address string) error {
	p, qualityReport, err := f.buildProfile(path, t)
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &qualityReport.Quality)
	if err := f.finishExport(qualityReport); err != nil {
		return err
	}
	if len(p.Sample) == 0 {
		return message.WithHint(newEmptyProfileError(f.options.Type), "gpurec analyze "+path)
	}
	return servePprofPages(ctx, p, address)
}

func newFoldedCommand() *cobra.Command {
	f := &profileFlags{reportFlags: &reportFlags{command: "folded", values: pprof.Sections}}
	var sampleType string
	cmd := &cobra.Command{
		Use:   "folded [FILE]",
		Short: "Write folded stacks for flamegraph.pl and speedscope",
		Long: `folded writes the profiles of "gpurec analyze pprof" as text. Each line is a distinct
stack and a value: the frames, root first, are joined by semicolons. flamegraph.pl draws
the text. speedscope.app opens it in the browser and uploads nothing.`,
		Example: `  gpurec analyze folded run.parquet | flamegraph.pl --countname bytes > heap.svg
  gpurec analyze folded --type sync-time --root-by thread -o waits.folded run.parquet
  gpurec analyze folded --sample-type alloc_space run.parquet | sort -nrk2 | head`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := f.checkFlags(); err != nil {
				return err
			}
			return f.openRecording(
				args,
				func(path string, t *timeline.Timeline) error { return f.writeFolded(path, t, sampleType) },
			)
		},
	}
	f.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&sampleType, "sample-type", "", "write `VALUE`, such as alloc_space; --explain lists the "+
		"values (default: that of --type)")
	cmd.Flags().StringVarP(&f.out.path, "output", "o", "-", "write to `FILE`; - for standard output")
	cmd.Flags().BoolVar(&f.out.force, "force", false, "replace FILE if it exists")
	return f.registerCompletions(cmd)
}

// writeFolded writes the profile as folded stacks.
func (f *profileFlags) writeFolded(path string, t *timeline.Timeline, sampleType string) error {
	p, qualityReport, err := f.buildProfile(path, t)
	if err != nil {
		return err
	}
	if known := pprof.ListSampleTypes(p); sampleType != "" && !slices.Contains(known, sampleType) {
		return message.Usagef(
			f.helpCommand(),
			"--sample-type %s: the values of --type %s are %s",
			sampleType,
			f.options.Type,
			strings.Join(known, ", "),
		)
	}
	var lines int
	fill := func(w io.Writer) (err error) {
		lines, err = pprof.WriteFoldedStacks(w, p, sampleType)
		return err
	}
	written := "standard output"
	if f.out.path == "-" {
		err = fill(os.Stdout) // not out.write, which refuses to write to a terminal
	} else {
		written, err = f.out.writeFile(path, ".folded", fill)
	}
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &qualityReport.Quality)
	message.Notef("%s stacks -> %s", units.FormatCount(int64(lines)), written)
	return f.finishExport(qualityReport)
}

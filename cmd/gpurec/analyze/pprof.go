package analyze

import (
	"context"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	pprofpkg "github.com/gpurec/gpurec/analyze/export/pprof"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	reportpkg "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// profileFlags are the flags of pprof and folded, which write the same profiles.
type profileFlags struct {
	*reportFlags
	of  pprofpkg.Options
	at  string
	out outputFlags
}

func (f *profileFlags) add(flags *pflag.FlagSet) {
	f.addFilter(flags)
	f.addKernel(flags)
	types, roots := pprofpkg.Types(), pprofpkg.Roots()
	flags.StringVar(&f.of.Type, "type", types[0], "`WHAT` to profile: "+strings.Join(types, ", "))
	flags.StringVar(&f.at, "at", "end", "with heap and allocs, show what was in use at `TIME`: end, peak, an offset "+
		"such as 12s, or RFC 3339")
	flags.StringVar(
		&f.of.RootBy,
		"root-by",
		"",
		"put stacks under a frame for their `WHAT`: "+strings.Join(roots, ", "),
	)
	f.addHideFrames(flags, "leave out frames of CUDA, CPython, libc and the inside of PyTorch, and those whose "+
		"function, module or file matches `REGEX`; default: only the former; none: only the latter")
	f.source.add(flags)
}

// check reads the flags that need no recording.
func (f *profileFlags) check() error {
	for _, c := range []struct {
		flag, value string
		known       []string
	}{{"type", f.of.Type, pprofpkg.Types()}, {"root-by", f.of.RootBy, append(pprofpkg.Roots(), "")}} {
		if !slices.Contains(c.known, c.value) {
			return message.Usagef(
				f.help(),
				"--%s %s: there are %s",
				c.flag,
				c.value,
				strings.TrimSuffix(strings.Join(c.known, ", "), ", "),
			)
		}
	}
	if isMemory := f.of.Type == "heap" || f.of.Type == "allocs"; !isMemory && f.at != "end" {
		return message.Usagef(
			f.help(),
			"--at %s is for --type heap and allocs; for %s there are --from and --to",
			f.at,
			f.of.Type,
		)
	}
	return nil
}

// profile makes the profile, and says what it is worth.
func (f *profileFlags) profile(path string, t *timeline.Timeline) (*profile.Profile, *reportpkg.Report, error) {
	f.of.Options = f.opt
	var err error
	if f.of.At, f.of.AtNs, err = f.moment(f.at, t); err != nil {
		return nil, nil, err
	}
	p, quality, noMatch, err := pprofpkg.Build(t, f.of)
	if err != nil {
		return nil, nil, message.ExplainOpen(path, err)
	}
	return p, &reportpkg.Report{Command: f.command, Quality: quality, NoMatch: noMatch}, nil
}

func init() { subcommands["pprof"] = newPprof }

func newPprof() *cobra.Command {
	f := &profileFlags{reportFlags: &reportFlags{command: "pprof", values: pprofpkg.Sections}}
	var address string
	cmd := &cobra.Command{
		Use:   "pprof [FILE]",
		Short: "Write a profile for go tool pprof and other viewers of pprof files, or show it in the browser",
		Long: `pprof writes a profile for pprof, which shows it as flame graphs and tables, compares
two of them, and more: of the stacks that allocated memory (heap, allocs), launched
kernels (launches), spent time in the CUDA driver (api-time), waited for the GPU
(sync-time) or copied (copies). Times are those of threads on the CPU, never of the GPU.

With --http it writes no file and serves pprof's own web pages of the profile instead,
until Ctrl-C: at :0 on a free port of this machine, for this machine only.`,
		Example: `  gpurec analyze pprof run.parquet && go tool pprof -http=: run.pb.gz
  gpurec analyze pprof --http :0 --at peak run.parquet
  gpurec analyze pprof --type launches --root-by thread -o launches.pb.gz run.parquet
  gpurec analyze pprof -o - run.parquet > heap.pb.gz`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			serving := cmd.Flags().Changed("http")
			if _, _, err := net.SplitHostPort(address); serving && err != nil {
				return message.Usagef(f.help(), "--http %s: want HOST:PORT, or :0 for a free port of this "+
					"machine", address)
			}
			if serving && f.out.path != "" {
				return message.Usagef(f.help(), "--http writes no file: leave out -o %s", f.out.path)
			}
			return f.open(args, func(path string, t *timeline.Timeline) error {
				if serving {
					return f.serve(cmd.Context(), path, t, address)
				}
				return f.pprof(path, t)
			})
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&address, "http", "", "serve pprof's web pages at `HOST:PORT` instead of writing a file; "+
		"no HOST is localhost, port 0 a free one")
	f.out.add(cmd.Flags(), ".pb.gz")
	return f.complete(cmd)
}

// complete has the shell complete what flags may be set to.
func (f *profileFlags) complete(cmd *cobra.Command) *cobra.Command {
	for flag, known := range map[string][]string{
		"type":    pprofpkg.Types(),
		"root-by": pprofpkg.Roots(),
		"at":      {"end", "peak"},
	} {
		// the flag exists
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(known, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func (f *profileFlags) pprof(path string, t *timeline.Timeline) error {
	p, report, err := f.profile(path, t)
	if err != nil {
		return err
	}
	suffix := ".pb.gz"
	if f.of.Type != "heap" {
		suffix = "." + f.of.Type + suffix
	}
	written, err := f.out.write(path, suffix, p.Write)
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &report.Quality)
	message.Notef(
		"%s samples -> %s; next: go tool pprof -http=: %s",
		units.Count(int64(len(p.Sample))),
		written,
		written,
	)
	return f.exported(report)
}

// serve shows the profile in pprof's web pages until the user ends it.
func (f *profileFlags) serve(ctx context.Context, path string, t *timeline.Timeline, address string) error {
	p, report, err := f.profile(path, t)
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &report.Quality)
	if err := f.exported(report); err != nil {
		return err
	}
	if len(p.Sample) == 0 {
		return message.WithHint(noSamples(f.of.Type), "gpurec analyze "+path)
	}
	return servePprof(ctx, p, address)
}

func init() { subcommands["folded"] = newFolded }

func newFolded() *cobra.Command {
	f := &profileFlags{reportFlags: &reportFlags{command: "folded", values: pprofpkg.Sections}}
	var sampleType string
	cmd := &cobra.Command{
		Use:   "folded [FILE]",
		Short: "Write folded stacks for flamegraph.pl and speedscope",
		Long: `folded writes the profiles of gpurec analyze pprof as text: a line per distinct stack, root
first, frames joined by semicolons, and a number. flamegraph.pl makes a picture of it,
speedscope.app opens it (in the browser: nothing is sent anywhere).`,
		Example: `  gpurec analyze folded run.parquet | flamegraph.pl --countname bytes > heap.svg
  gpurec analyze folded --type sync-time --root-by thread -o waits.folded run.parquet
  gpurec analyze folded --sample-type alloc_space run.parquet | sort -nrk2 | head`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			return f.open(args, func(path string, t *timeline.Timeline) error { return f.folded(path, t, sampleType) })
		},
	}
	f.add(cmd.Flags())
	cmd.Flags().StringVar(&sampleType, "sample-type", "", "the `VALUE` to write, such as alloc_space; gpurec "+
		"analyze folded --explain lists them (default: that of the type which pprof shows first)")
	cmd.Flags().StringVarP(&f.out.path, "output", "o", "-", "write to `FILE`; - is standard output")
	cmd.Flags().BoolVar(&f.out.force, "force", false, "replace FILE if it exists")
	return f.complete(cmd)
}

func (f *profileFlags) folded(path string, t *timeline.Timeline, sampleType string) error {
	p, report, err := f.profile(path, t)
	if err != nil {
		return err
	}
	if known := pprofpkg.SampleTypes(p); sampleType != "" && !slices.Contains(known, sampleType) {
		return message.Usagef(
			f.help(),
			"--sample-type %s: --type %s has %s",
			sampleType,
			f.of.Type,
			strings.Join(known, ", "),
		)
	}
	var lines int
	fill := func(w io.Writer) (err error) {
		lines, err = pprofpkg.Folded(w, p, sampleType)
		return err
	}
	written := "standard output"
	if f.out.path == "-" {
		err = fill(os.Stdout) // text: a terminal can show it
	} else {
		written, err = f.out.write(path, ".folded", fill)
	}
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &report.Quality)
	message.Notef("%s stacks -> %s", units.Count(int64(lines)), written)
	return f.exported(report)
}

package analyze

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	perfettopkg "github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format/output"
	"github.com/spf13/cobra"
)

// traceFlags are the flags of perfetto.
type traceFlags struct {
	*reportFlags
	out    outputFlags
	slices int64
	split  bool
}

func init() { subcommands["perfetto"] = newPerfetto }

func newPerfetto() *cobra.Command {
	f := &traceFlags{reportFlags: &reportFlags{command: "perfetto", values: perfettopkg.Sections}}
	cmd := &cobra.Command{
		Use:   "perfetto [FILE]",
		Short: "Write a trace for ui.perfetto.dev",
		Long: `perfetto writes every call as a slice on its thread, with arguments, stack and result,
what was launched and copied on every stream, the live memory of every GPU, and the
samples of NVML, as a trace that ui.perfetto.dev opens (in the browser: nothing is sent
anywhere). A name that ends in .gz is compressed.

The viewer gets slow with millions of slices: calls beyond --max-slices are left out, and
it is said how many. With --split they are written to further files NAME.2.pftrace,
NAME.3.pftrace and so on; a call that reaches into the next file is in both.`,
		Example: `  gpurec analyze perfetto run.parquet
  gpurec analyze perfetto --from 10s --to 12s -o part.pftrace.gz run.parquet
  gpurec analyze perfetto --split --max-slices 1000000 run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			switch {
			case f.slices < 0:
				return message.Usagef(f.help(), "--max-slices cannot be negative")
			case f.split && f.slices == 0:
				return message.Usagef(f.help(), "--split needs --max-slices: how many slices a file is to have")
			case f.split && f.out.path == "-":
				return message.Usagef(f.help(), "--split writes several files: standard output is one")
			}
			return f.open(args, f.perfetto)
		},
	}
	f.addFilter(cmd.Flags())
	f.addKernel(cmd.Flags())
	f.source.add(cmd.Flags())
	cmd.Flags().Int64Var(&f.slices, "max-slices", perfettopkg.DefaultMaxSlices, "write at most `N` slices and "+
		"instants of calls; 0: all")
	cmd.Flags().BoolVar(&f.split, "split", false, "go on in further files instead of leaving calls out, each of "+
		"--max-slices")
	f.out.add(cmd.Flags(), ".pftrace")
	return cmd
}

func (f *traceFlags) perfetto(path string, t *timeline.Timeline) error {
	parts := &traceParts{out: &f.out, name: f.out.name(path, ".pftrace")}
	opt := perfettopkg.Options{Filter: f.opt.Filter, MaxSlices: f.slices}
	if f.split {
		opt.Next = parts.next
		if err := parts.check(); err != nil {
			return err
		}
	}
	stats, err := parts.write(func(w io.Writer) (*perfettopkg.Stats, error) { return perfettopkg.Write(t, w, opt) })
	if err != nil {
		return err
	}
	message.Notef("quality: %s", &stats.Quality)
	if stats.LeftOut > 0 {
		from := query.Offset(stats.LeftOutNs, t.Recording())
		message.Warningf(
			"%s calls from %s on are left out: more than %s slices; --split writes them to further files",
			units.Count(stats.LeftOut),
			from,
			units.Count(f.slices),
		)
		message.Hintf("gpurec analyze perfetto --from %s %s -o FILE", from, path)
	}
	next := "open it"
	if stats.Parts > 1 {
		next = "open them one by one"
	}
	message.Notef("%s calls -> %s; next: %s at https://ui.perfetto.dev", units.Count(stats.Calls), parts, next)
	return f.exported(&report.Report{Command: f.command, Quality: stats.Quality, NoMatch: stats.NoMatch})
}

// traceParts are the files of a trace.
type traceParts struct {
	out     *outputFlags
	name    string // of the first
	written []string
	file    *output.File
	zip     *gzip.Writer
}

// write has the trace written to files, or to standard output. If that fails none of them is left.
func (p *traceParts) write(trace func(io.Writer) (*perfettopkg.Stats, error)) (stats *perfettopkg.Stats, err error) {
	if p.out.path == "-" {
		p.written = []string{"standard output"}
		_, err = p.out.write("", "", func(w io.Writer) (err error) {
			stats, err = trace(w)
			return err
		})
		return stats, err
	}
	first, err := p.next()
	if err != nil {
		return nil, err
	}
	if stats, err = trace(first); err == nil {
		err = p.close()
	}
	if err != nil {
		p.discard()
		return nil, fmt.Errorf("write %s: %w", p.name, err)
	}
	return stats, nil
}

// discard removes what was written.
func (p *traceParts) discard() {
	if p.file != nil {
		p.file.Discard()
	}
	for _, name := range p.written {
		os.Remove(name)
	}
}

// partName is the name of a file, the first of which is 1: run.pftrace.gz → run.2.pftrace.gz.
func (p *traceParts) partName(n string) string {
	base, zipped := strings.CutSuffix(p.name, ".gz")
	ext := filepath.Ext(base)
	name := strings.TrimSuffix(base, ext) + "." + n + ext
	if zipped {
		name += ".gz"
	}
	return name
}

// check checks the names of all parts before anything is written. How many there will be is not
// known yet: what has the name of a later part is refused, needed or not.
func (p *traceParts) check() error {
	if err := p.out.check(p.name); err != nil {
		return err
	}
	before, after, _ := strings.Cut(p.partName("\x00"), "\x00")
	before = filepath.Base(before)
	entries, err := os.ReadDir(filepath.Dir(p.name))
	if err != nil {
		return err
	}
	for _, e := range entries {
		number, isPart := strings.CutPrefix(e.Name(), before)
		number, hasEnd := strings.CutSuffix(number, after)
		if n, err := strconv.Atoi(number); !isPart || !hasEnd || err != nil || n < 2 {
			continue
		}
		if err := p.out.check(p.partName(number)); err != nil {
			return err
		}
	}
	return nil
}

// next closes the file that was written and begins another.
func (p *traceParts) next() (io.Writer, error) {
	if err := p.close(); err != nil {
		return nil, err
	}
	name := p.name
	if n := len(p.written) + 1; n > 1 {
		name = p.partName(strconv.Itoa(n))
	}
	file, err := p.out.create(name)
	if err != nil {
		return nil, err
	}
	p.file = file
	if !strings.HasSuffix(name, ".gz") {
		return file, nil
	}
	if p.zip == nil {
		// the level exists; the usual one takes five times as long for three tenths less
		p.zip, _ = gzip.NewWriterLevel(file, gzip.BestSpeed)
	} else {
		p.zip.Reset(file)
	}
	return p.zip, nil
}

// close ends the file that was written.
func (p *traceParts) close() error {
	if p.file == nil {
		return nil
	}
	file := p.file
	p.file = nil
	if p.zip != nil {
		if err := p.zip.Close(); err != nil {
			file.Discard()
			return err
		}
	}
	if err := file.Commit(); err != nil {
		return p.out.explain(err)
	}
	p.written = append(p.written, file.Path())
	return nil
}

// String names the files.
func (p *traceParts) String() string {
	if n := len(p.written); n > 1 {
		return fmt.Sprintf("%s … %s (%d files)", p.written[0], p.written[n-1], n)
	}
	return p.written[0]
}

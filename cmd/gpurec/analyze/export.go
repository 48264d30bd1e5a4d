package analyze

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/gpurec/gpurec/analyze/export/rows"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

// rowFlags holds the flags of "gpurec analyze export".
type rowFlags struct {
	*reportFlags
	options rows.Options
	out     outputFlags
}

func newExportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the rows of a recording as CSV or JSON lines",
		Long: `export writes the rows of a recording for other programs. --class and --kind select rows,
and --columns selects columns. The other filters are those of reports. Rows are in the
order of the file. Filters of time keep all facts, and all filters keep all stacks.

Times are in Unix ns in start_ns, and in ISO 8601 in time. The column stack has the
functions of a stack, root first, joined by ";". --stacks writes it into each row that has
a stack. format/FORMAT.md in the source code describes the other columns.`,
		Example: `  gpurec analyze export csv --class memory -o memory.csv run.parquet
  gpurec analyze export csv --kind launch --columns time,kernel,site run.parquet
  gpurec analyze export jsonl --from 10s --to 20s --stacks run.parquet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newExportFormatCommand("csv", rows.CSV), newExportFormatCommand("jsonl", rows.JSONL))
	return cmd
}

// newExportFormatCommand returns the command that exports one format.
func newExportFormatCommand(name string, as rows.Format) *cobra.Command {
	f := &rowFlags{reportFlags: &reportFlags{command: "export " + name, values: rows.Sections}}
	f.options.Format = as
	cmd := &cobra.Command{Use: name + " [FILE]", Args: cobra.MaximumNArgs(1)}
	cmd.RunE = func(_ *cobra.Command, args []string) error { return f.openRecording(args, f.writeRows) }
	flags := cmd.Flags()
	if as == rows.CSV {
		cmd.Short = "Write rows as CSV, with a header"
		cmd.Long = `csv writes rows with a header and the quotes of RFC 4180. Text that a spreadsheet would
evaluate gets a single quote in front. Invalid UTF-8 becomes U+FFFD.`
		cmd.Example = `  gpurec analyze export csv --kind alloc,free --columns time,name,bytes,site run.parquet
  gpurec analyze export csv --class memory -o memory.csv run.parquet`
		flags.BoolVar(&f.options.NoHeader, "no-header", false, "write no line of column names")
	} else {
		cmd.Short = "Write rows as JSON, one object in each line"
		cmd.Long = `jsonl writes each row as a JSON object in a line. Without --columns, it leaves out columns
that are 0 or empty. Integers may need 64 bits. Invalid UTF-8 becomes U+FFFD.`
		cmd.Example = `  gpurec analyze export jsonl --class call --pid 4242 run.parquet
  gpurec analyze export jsonl --kind launch --stacks -o launches.jsonl run.parquet`
	}
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	_ = flags.MarkHidden("fail-on") // fails only for an unknown flag
	flags.StringSliceVar(&f.options.Classes, "class", nil, "only rows of `CLASS`, such as call or memory; repeatable")
	flags.StringSliceVar(&f.options.Kinds, "kind", nil, "only rows of `KIND`, such as launch or alloc; repeatable")
	flags.StringSliceVar(&f.options.Columns, "columns", nil, "only columns `NAME`, in this order; repeatable")
	flags.BoolVar(&f.options.Stacks, "stacks", false, "write the stack of each row into the column stack")
	flags.StringVarP(&f.out.path, "output", "o", "-", "write to `FILE`; - for standard output")
	flags.BoolVar(&f.out.force, "force", false, "replace FILE if it exists")
	return cmd
}

// writeRows writes the rows to a file or to standard output, and prints their number.
func (f *rowFlags) writeRows(path string, t *timeline.Timeline) error {
	if f.failOn != "" {
		return message.Usagef(f.helpCommand(), "--fail-on needs a report: export computes no values")
	}
	f.options.Filter = f.opt.Filter
	var stats *rows.Stats
	fill := func(w io.Writer) (err error) {
		stats, err = rows.WriteRows(t, w, f.options)
		return err
	}
	written := "standard output"
	var err error
	if f.out.path == "-" {
		err = fill(os.Stdout) // not out.writeFile, which refuses to write to a terminal
	} else {
		written, err = f.out.writeFile(path, "", fill)
	}
	var name *rows.NameError
	switch {
	case errors.As(err, &name):
		return message.Usagef(f.helpCommand(), "%w", name)
	case err != nil:
		return fmt.Errorf("export %s: %w", path, err)
	}
	if stats.NoMatch != nil {
		message.Warningf("%v", stats.NoMatch)
	}
	if lost := t.Rec.Meta.Totals().Lost; lost > 0 {
		message.Warningf("the recording lacks %s calls that were lost", units.FormatCount(lost))
	}
	message.Notef("%s rows -> %s", units.FormatCount(stats.Rows), written)
	return nil
}

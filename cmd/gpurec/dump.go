package main

import (
	"os"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/spf13/cobra"
)

func newDumpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "dump FILE",
		Short: "Print a recording as text, row by row",
		Long: `dump prints the metadata and every row of a recording as text, for use with less,
grep and diff. FILE may be the folder of an unfinished recording.

A line begins with the kind of the row, followed by all columns that are not 0 or empty.
Rows come in row groups of one class: fact, stack, sample, memory, call, allocator,
progress, host, collective or arguments. In the class progress, rows come channel by channel. format/FORMAT.md in the
source code describes every kind and column.`,
		Example: `  gpurec dump run.parquet | less
  gpurec dump run.parquet | grep '^alloc .*result=2'
  gpurec dump run.parquet | grep '^progress .*channel=1 '`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			rec, err := format.Open(args[0])
			if err != nil {
				return message.ExplainOpen(args[0], err)
			}
			defer rec.Close()
			for _, d := range rec.Damaged {
				message.Warningf("skipped a damaged segment: %v", d)
			}
			return rec.WriteText(os.Stdout)
		},
	}
}

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
grep and diff. FILE may be the folder of an unfinished recording.`,
		Example: `  gpurec dump run.parquet | less
  gpurec dump run.parquet | grep '^alloc .*result=2'`,
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

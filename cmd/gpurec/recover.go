package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
	"github.com/spf13/cobra"
)

func newRecoverCommand() *cobra.Command {
	var file string
	var force bool
	cmd := &cobra.Command{
		Use:   "recover FOLDER",
		Short: "Finish an interrupted recording",
		Long: `recover merges the segments of an interrupted recording into one file. Use it after
the recorder was killed or the disk was full. It needs neither root nor a GPU.`,
		Example: `  gpurec recover run.parquet.d
  gpurec recover run.parquet.d -o saved.parquet`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := filepath.Clean(args[0])
			if file == "" {
				file = strings.TrimSuffix(dir, format.SegmentSuffix)
				if file == dir {
					return message.Usagef(fmt.Sprintf("gpurec recover %s -o FILE.parquet", dir), "%s does not end "+
						"in %s: set the output file with -o", dir, format.SegmentSuffix)
				}
			}
			damaged, err := format.Recover(dir, file, format.Options{Force: force, Owner: output.SudoOwner()})
			if errors.Is(err, format.ErrExists) {
				return message.WithHint(fmt.Errorf("%s exists", file), fmt.Sprintf("gpurec recover %s -o "+
					"OTHER.parquet, or --force", dir))
			}
			if refused := message.ExplainOutput("-o", false, err); refused != nil {
				return refused
			}
			if err != nil {
				return message.ExplainOpen(dir, err)
			}
			for _, d := range damaged {
				message.Warningf("skipped a damaged segment: %v", d)
			}
			if len(damaged) > 0 {
				message.Warningf("%s was not deleted because it has damaged segments", dir)
			}
			message.Notef("recovered %s; next: gpurec analyze leaks %s", file, file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "write to `FILE` (default: the name of FOLDER without .d)")
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	return cmd
}

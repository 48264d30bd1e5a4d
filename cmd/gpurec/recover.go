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

func newRecover() *cobra.Command {
	var file string
	var force bool
	cmd := &cobra.Command{
		Use:   "recover FOLDER",
		Short: "Finish a recording that was cut off",
		Long: `recover merges the finished segments of a recording whose recorder was killed,
or ran out of disk, into one file. It needs no root and no GPU.`,
		Example: `  gpurec recover run.parquet.d
  gpurec recover run.parquet.d -o saved.parquet`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir := filepath.Clean(args[0])
			if file == "" {
				file = strings.TrimSuffix(dir, format.SegmentSuffix)
				if file == dir {
					return message.Usagef(fmt.Sprintf("gpurec recover %s -o FILE.parquet", dir), "%s does not end "+
						"in %s: say where to write with -o", dir, format.SegmentSuffix)
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
				message.Warningf("left out: %v", d)
			}
			if len(damaged) > 0 {
				message.Warningf("%s is kept because of the damaged segments", dir)
			}
			message.Notef("recovered %s; next: gpurec analyze leaks %s", file, file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "`FILE` to write (default: the folder's name without .d)")
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	return cmd
}

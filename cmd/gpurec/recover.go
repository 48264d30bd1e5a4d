package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/spf13/cobra"
)

func newRecover() *cobra.Command {
	var output string
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
			if output == "" {
				output = strings.TrimSuffix(dir, format.SegmentSuffix)
				if output == dir {
					return usagef(fmt.Sprintf("gpurec recover %s -o FILE.parquet", dir), "%s does not end in %s: say where to write with -o", dir, format.SegmentSuffix)
				}
			}
			damaged, err := format.Recover(dir, output, format.Options{Force: force, Owner: sudoOwner()})
			if errors.Is(err, format.ErrExists) {
				return &hintedError{fmt.Errorf("%s exists", output), fmt.Sprintf("gpurec recover %s -o OTHER.parquet, or --force", dir)}
			}
			if refused := explainOutput("-o", false, err); refused != nil {
				return refused
			}
			if err != nil {
				return explainOpen(dir, err)
			}
			for _, d := range damaged {
				warningf("left out: %v", d)
			}
			if len(damaged) > 0 {
				warningf("%s is kept because of the damaged segments", dir)
			}
			notef("recovered %s; next: gpurec analyze leaks %s", output, output)
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FILE` to write (default: the folder's name without .d)")
	cmd.Flags().BoolVar(&force, "force", false, "replace FILE if it exists")
	return cmd
}

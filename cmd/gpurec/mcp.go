package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpurec/gpurec/analyze/export/digest"
	"github.com/gpurec/gpurec/analyze/mcp"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

func newMCPCommand() *cobra.Command {
	var dir string
	var maxChars int
	cmd := &cobra.Command{
		Use:   "mcp --dir FOLDER",
		Short: "Serve reports to a language model (Model Context Protocol, stdio)",
		Long: `mcp serves digests and reports about the recordings in a folder to a client of the Model
Context Protocol, such as a program that runs a language model. The client starts it, and
sends requests to standard input.

The server only reads. It reads recordings in the folder and the folders below it, and no
other file. It has no network, and it cannot record. Answers have at most 12,000
characters; they say what they leave out.

Names in recordings come from the recorded programs. Answers mark them as data, but a
model may still follow them. Use a client that asks before it acts.`,
		Example: `  gpurec mcp --dir /srv/recordings
  claude mcp add gpurec -- gpurec mcp --dir /srv/recordings`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := openServedFolder(cmd, dir, maxChars)
			if err != nil {
				return err
			}
			defer root.Close()
			err = mcp.Serve(cmd.Context(), root, os.Stdin, os.Stdout, mcp.Options{
				Version: buildVersion(), MaxChars: maxChars,
			})
			if err != nil {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "serve the recordings in `FOLDER` and below")
	cmd.Flags().IntVar(&maxChars, "max-chars", digest.DefaultMaxChars, "write at most `N` characters in an answer")
	return cmd
}

// openServedFolder checks the flags, and opens the folder.
func openServedFolder(cmd *cobra.Command, dir string, maxChars int) (*os.Root, error) {
	usage := cmd.CommandPath() + " --help"
	switch {
	case dir == "":
		return nil, message.Usagef(usage, "--dir is missing: which folder has the recordings?")
	case maxChars < digest.MinMaxChars:
		return nil, message.Usagef(usage, "--max-chars must be at least %d", digest.MinMaxChars)
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if filepath.Dir(path) == path {
		return nil, message.Usagef(usage, "--dir %s is the whole system: give a folder with recordings", dir)
	}
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, message.WithHint(fmt.Errorf("--dir: %w", err), "ls -ld "+path)
	}
	return root, nil
}

//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// recordingNeedsLinux stands in for the verbs that need the Linux kernel.
func recordingNeedsLinux(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("recording needs Linux; this build can only read recordings")
		},
	}
}

func newRecord() *cobra.Command {
	return recordingNeedsLinux("record", "Record a process (Linux only)")
}

func newPs() *cobra.Command {
	return recordingNeedsLinux("ps", "List the processes that use CUDA (Linux only)")
}

func newCheck() *cobra.Command {
	return recordingNeedsLinux("check", "Tell what can be recorded here (Linux only)")
}

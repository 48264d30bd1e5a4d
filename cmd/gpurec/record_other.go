//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// newLinuxOnly returns a command that fails with an error: the real one needs the Linux kernel.
func newLinuxOnly(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("recording needs Linux; this build only reads recordings")
		},
	}
}

func newRecord() *cobra.Command {
	return newLinuxOnly("record", "Record a process (Linux only)")
}

func newPs() *cobra.Command {
	return newLinuxOnly("ps", "List the processes that use CUDA (Linux only)")
}

func newCheck() *cobra.Command {
	return newLinuxOnly("check", "Check whether recording works on this machine (Linux only)")
}

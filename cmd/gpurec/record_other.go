//go:build !linux

package main

import (
	"errors"

	"github.com/spf13/cobra"
)

// newLinuxOnlyCommand returns a command that fails with an error: the real one needs the Linux kernel.
func newLinuxOnlyCommand(use, short string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("recording needs Linux; this build only reads recordings")
		},
	}
}

func newRecordCommand() *cobra.Command {
	return newLinuxOnlyCommand("record", "Record a process (Linux only)")
}

func newAgentCommand() *cobra.Command {
	return newLinuxOnlyCommand("agent", "Record a node all the time (Linux only)")
}

func newTriggerCommand() *cobra.Command {
	return newLinuxOnlyCommand("trigger", "Ask the running agent to keep what happened (Linux only)")
}

func newShipCommand() *cobra.Command {
	return newLinuxOnlyCommand("ship", "Serve the numbers of the running agent to Prometheus (Linux only)")
}

func newPsCommand() *cobra.Command {
	return newLinuxOnlyCommand("ps", "List the processes that use CUDA (Linux only)")
}

func newCheckCommand() *cobra.Command {
	return newLinuxOnlyCommand("check", "Check whether recording works on this machine (Linux only)")
}

func newStacksCommand() *cobra.Command {
	return newLinuxOnlyCommand("stacks", "Show the stacks of a running process (Linux only)")
}

func newMemoryCommand() *cobra.Command {
	return newLinuxOnlyCommand("memory", "Show the memory of a process's PyTorch allocator (Linux only)")
}

func newTopCommand() *cobra.Command {
	return newLinuxOnlyCommand("top", "Show what processes that use CUDA do now (Linux only)")
}

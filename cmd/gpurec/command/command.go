// Package command executes a command line. It converts wrong flags and arguments to usage errors,
// prints errors, and chooses the exit code.
package command

import (
	"context"
	"errors"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/spf13/cobra"
)

// Run executes the command line args and prints its error. It returns the exit code: that of a
// message.ExitStatus, else one of the message.Exit constants.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &message.UsageError{Err: err, Hint: cmd.CommandPath() + " --help"}
	})
	returnUsageErrors(root)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return message.ExitOK
	}
	var status *message.ExitStatus
	if errors.As(err, &status) {
		return status.Code
	}
	message.PrintError(err)
	var usage *message.UsageError
	if errors.As(err, &usage) {
		return message.ExitUsage
	}
	return message.ExitFailed
}

// returnUsageErrors makes cmd and its subcommands return usage errors with a hint for wrong
// arguments, such as an unknown subcommand.
func returnUsageErrors(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err == nil {
				return nil
			}
			hint := c.CommandPath() + " --help"
			if c.HasAvailableSubCommands() && len(args) > 0 {
				if names := c.SuggestionsFor(args[0]); len(names) > 0 {
					hint = c.CommandPath() + " " + names[0]
				}
			}
			return &message.UsageError{Err: err, Hint: hint}
		}
	}
	for _, sub := range cmd.Commands() {
		returnUsageErrors(sub)
	}
}

package command

import (
	"errors"
	"testing"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/spf13/cobra"
)

func TestExitCodes(t *testing.T) {
	testclass.Unit(t)
	for line, want := range map[string]struct {
		args []string
		code int
	}{
		"no error":           {[]string{"sub"}, message.ExitOK},
		"an error":           {[]string{"sub", "--fail"}, message.ExitFailed},
		"a status":           {[]string{"sub", "--status"}, 7},
		"unknown flag":       {[]string{"sub", "--unknown"}, message.ExitUsage},
		"too many arguments": {[]string{"sub", "a"}, message.ExitUsage},
		"unknown command":    {[]string{"sup"}, message.ExitUsage},
	} {
		root := &cobra.Command{
			Use:  "root",
			Args: cobra.NoArgs,
			RunE: func(*cobra.Command, []string) error { return nil },
		}
		var fail, status bool
		sub := &cobra.Command{Use: "sub", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
			switch {
			case fail:
				return errors.New("it fails")
			case status:
				return &message.ExitStatus{Code: 7}
			}
			return nil
		}}
		sub.Flags().BoolVar(&fail, "fail", false, "")
		sub.Flags().BoolVar(&status, "status", false, "")
		root.AddCommand(sub)
		if code := Run(t.Context(), root, want.args); code != want.code {
			t.Errorf("%s: exit code %d, want %d", line, code, want.code)
		}
	}
}

func TestWrongArgumentsHaveHints(t *testing.T) {
	testclass.Unit(t)
	root := &cobra.Command{
		Use:                        "root",
		SuggestionsMinimumDistance: 3,
		Args:                       cobra.NoArgs,
		Run:                        func(*cobra.Command, []string) {},
	}
	root.AddCommand(&cobra.Command{Use: "record", Run: func(*cobra.Command, []string) {}})
	returnUsageErrors(root)
	for arg, want := range map[string]string{"recrod": "root record", "xyz": "root --help"} {
		err := root.Args(root, []string{arg})
		var usage *message.UsageError
		if !errors.As(err, &usage) || usage.Hint != want {
			t.Errorf("%s: %v, want the hint %q", arg, err, want)
		}
	}
}

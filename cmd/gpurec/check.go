//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/record"

	"github.com/spf13/cobra"

	"github.com/gpurec/gpurec/record/privilege"
)

func newCheckCommand() *cobra.Command {
	var pid int
	var calls bool
	var attach string
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check whether recording works on this machine, without attaching probes",
		Long: `check tests the kernel, the privileges and the GPU driver, and with -p a process.
It reports which recording features work here, and why others do not. It attaches no
probes. The exit status is 1 if recording would fail.`,
		Example: `  sudo gpurec check
  sudo gpurec check -p 4242
  sudo gpurec check -p 4242 --calls    # list the functions to probe, with file offsets`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if calls && pid == 0 {
				return message.Usagef("sudo gpurec check -p PID --calls", "--calls needs a process: -p PID")
			}
			return checkMachine(os.Stdout, pid, calls, privilege.AttachMethod(attach))
		},
	}
	cmd.Flags().IntVarP(&pid, "pid", "p", 0, "also check process `PID`")
	cmd.Flags().BoolVar(&calls, "calls", false, "print a table of the functions that would be probed")
	cmd.Flags().StringVar(&attach, "attach", string(privilege.AttachAuto), "attach `METHOD` to check: auto, "+
		"uprobe_multi or perf")
	return cmd
}

// checkMachine prints one line per tested feature. It returns an error if recording would fail. pid
// 0 checks the machine only; calls also prints the functions to probe in process pid.
func checkMachine(out io.Writer, pid int, calls bool, how privilege.AttachMethod) error {
	failed := false
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, f := range record.CheckRequirements(pid, how) {
		verdict := "ok"
		switch {
		case f.Err != nil && f.Needed:
			verdict, failed = "FAILS", true
		case f.Err != nil:
			verdict = "missing"
		}
		text := f.Text
		if f.Err != nil {
			text = f.Err.Error()
			if f.Without != "" {
				text += "; " + f.Without
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.What, verdict, strings.Map(message.Printable, text))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if calls {
		if err := printProbedFunctions(out, pid); err != nil {
			return err
		}
	}
	if failed {
		return message.WithHint(errors.New("recording would fail here"), "run as root: sudo gpurec check")
	}
	return nil
}

// printProbedFunctions prints the functions that gpurec would probe in the CUDA libraries of
// process pid. It marks the functions that a library does not export.
func printProbedFunctions(out io.Writer, pid int) error {
	tables, err := record.ListLibraryProbes(pid)
	if err != nil {
		return err
	}
	for _, t := range tables {
		fmt.Fprintf(out, "\n%s\n", strings.Map(message.Printable, t.Path))
		w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "FUNCTION\tFILE OFFSET\tSKIPPED\tCOST")
		for _, p := range t.Probes {
			cost := "cheap"
			if !p.Emulated {
				cost = "single-stepped"
			}
			fmt.Fprintf(w, "%s\t0x%x\t%d\t%s\n", p.Symbol, p.FileOffset, p.Skipped, cost)
		}
		for _, name := range t.Missing {
			fmt.Fprintf(w, "%s\t-\t-\tnot exported\n", name)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

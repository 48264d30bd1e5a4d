package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/spf13/cobra"
)

func init() { subcommands["errors"] = newErrors }

func newErrors() *cobra.Command {
	f := &reportFlags{command: "errors"}
	cmd := &cobra.Command{
		Use:   "errors [FILE]",
		Short: "Show which CUDA calls failed, where, and what that means",
		Long: `errors shows the calls that returned an error, by function, error and place. Errors of
work that was given to the GPU earlier (700, 719 and the like) are only noticed by the
call that returns them: for these it lists the launches that can be to blame, and the
driver's Xid.

The table of invalid frees says why frees failed: memory freed twice (with the sites of the
allocation and of both frees), a pointer inside a block, the wrong function, memory that
ended with its context, or a pointer that no recorded call returned.`,
		Example: `  gpurec analyze errors run.parquet
  gpurec analyze errors --pid 4242 --sort first_ns run.parquet
  gpurec analyze errors --fail-on 'asynchronous_errors>0 || double_frees>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, cudaerrors.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addKernel(flags)
	f.addReport(flags)
	flags.StringVar(&f.opt.Sort, "sort", "", "sort by `COLUMN` (default: class, then calls)")
	f.addFrames(flags)
	return cmd
}

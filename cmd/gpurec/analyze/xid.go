package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/spf13/cobra"
)

func init() { subcommands["xid"] = newXid }

func newXid() *cobra.Command {
	f := &reportFlags{command: "xid"}
	cmd := &cobra.Command{
		Use:   "xid [FILE]",
		Short: "Explain the errors that the GPU's driver reported, and show what was launched before",
		Long: `xid shows the Xid errors of GPUs and the SXid errors of NVSwitches: what they mean, what
they can come from, what to do, which process had them, which CUDA error it got and what
it had launched before.`,
		Example: `  gpurec analyze xid run.parquet
  gpurec analyze xid --format json run.parquet | jq '.xids[].action'
  gpurec analyze xid --fail-on 'hardware_xids>0' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, xid.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addKernel(flags)
	f.addReport(flags)
	flags.Lookup("device").Usage = "only GPU `N`, as NVML counts"
	f.addFrames(flags)
	return cmd
}

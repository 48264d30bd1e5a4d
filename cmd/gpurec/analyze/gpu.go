package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/spf13/cobra"
)

func init() { subcommands["gpu"] = newGPU }

func newGPU() *cobra.Command {
	f := &reportFlags{command: "gpu"}
	cmd := &cobra.Command{
		Use:   "gpu [FILE]",
		Short: "Show how busy the GPUs were, what held them down, and in which health they are",
		Long: `gpu shows what NVML said of each GPU: how busy it was, for how long its clocks were
held down and why, ECC errors and row remapping, PCIe and NVLink, the processes on it,
and every metric that was sampled. What stands out comes first.`,
		Example: `  gpurec analyze gpu run.parquet
  gpurec analyze gpu --device 0 --from 10s --to 20s run.parquet
  gpurec analyze gpu --fail-on 'problems>0 || idle_pct_max>50' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.report(args, gpu.Run) },
	}
	flags := cmd.Flags()
	f.addFilter(flags)
	f.addReport(flags)
	flags.Lookup("device").Usage = "only GPU `N`, as NVML counts"
	f.opt.Top = 0 // metrics are not ordered by weight
	flags.Lookup("top").DefValue = "0"
	return cmd
}

package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/gpu"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["gpu"] = newGPUCommand }

func newGPUCommand() *cobra.Command {
	f := &reportFlags{command: "gpu"}
	cmd := &cobra.Command{
		Use:   "gpu [FILE]",
		Short: "Show the utilisation, clock throttling and health of the GPUs",
		Long: `gpu shows the NVML samples of each GPU. They include the utilisation, the time and
reasons of clock throttling, ECC errors, row remapping, PCIe and NVLink. The report also
lists the processes on each GPU and every sampled metric. Problems come first.`,
		Example: `  gpurec analyze gpu run.parquet
  gpurec analyze gpu --device 0 --from 10s --to 20s run.parquet
  gpurec analyze gpu --fail-on 'problems>0 || idle_pct_max>50' run.parquet`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, gpu.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addReportFlags(flags)
	flags.Lookup("device").Usage = "only GPU `N` (NVML index)"
	f.opt.Top = 0 // show all rows: the metrics are not sorted by importance
	flags.Lookup("top").DefValue = "0"
	return cmd
}

package analyze

import (
	"github.com/gpurec/gpurec/analyze/report/xid"
	"github.com/spf13/cobra"
)

func init() { subcommandConstructors["xid"] = newXidCommand }

func newXidCommand() *cobra.Command {
	f := &reportFlags{command: "xid", byRank: true, wholeRecordings: true}
	cmd := &cobra.Command{
		Use:   "xid [FILE|FOLDER]...",
		Short: "Explain the Xid errors of the GPU driver, and show the launches before them",
		Long: `xid shows the Xid errors of GPUs and the SXid errors of NVSwitches. For each error it
shows the meaning, possible causes and advice. It also shows the affected process, the
CUDA error that the process got, and its last kernel launches.

` + byRankHelp,
		Example: `  gpurec analyze xid run.parquet
  gpurec analyze xid --format json run.parquet | jq '.xids[].action'
  gpurec analyze xid --fail-on 'hardware_xids>0' run.parquet`,
		RunE: func(_ *cobra.Command, args []string) error { return f.runReport(args, xid.Run) },
	}
	flags := cmd.Flags()
	f.addFilterFlags(flags)
	f.addKernelFlag(flags)
	f.addReportFlags(flags)
	flags.Lookup("device").Usage = "only GPU `N` (NVML index)"
	f.addFrameFlags(flags)
	return cmd
}

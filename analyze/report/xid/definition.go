package xid

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report xid.
var Definition = report.Definition{
	Name:  "xid",
	Short: "Explain the Xid errors of the GPU driver, and show the launches before them",
	Long: `xid shows the Xid errors of GPUs and the SXid errors of NVSwitches. For each error it
shows the meaning, possible causes and advice. It also shows the affected process, the
CUDA error that the process got, and its last kernel launches.`,
	Example: `  gpurec analyze xid run.parquet
  gpurec analyze xid --format json run.parquet | jq '.xids[].action'
  gpurec analyze xid --fail-on 'hardware_xids>0' run.parquet`,

	Question:   "What do the driver's Xid errors mean?",
	Subject:    report.SubjectFaults,
	IsFeatured: true,

	Recordings: report.EachRecording,
	Flags: report.Flags{
		Calls:  true,
		Kernel: true,
		Frames: true,
		Usage:  map[string]string{"device": "only GPU `N` (NVML index)"},
	},
	Sections: Sections,
	Page:     HTMLSection,
	Run:      Run,
}

package gpu

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report gpu.
var Definition = report.Definition{
	Name:  "gpu",
	Short: "Show the utilisation, clock throttling and health of the GPUs",
	Long: `gpu shows the NVML samples of each GPU. They include the utilisation, the time and
reasons of clock throttling, ECC errors, row remapping, PCIe and NVLink. The report also
lists the processes on each GPU and every sampled metric. Problems come first.`,
	Example: `  gpurec analyze gpu run.parquet
  gpurec analyze gpu --device 0 --from 10s --to 20s run.parquet
  gpurec analyze gpu --fail-on 'problems>0 || idle_pct_max>50' run.parquet`,

	Question:   "How busy and how healthy were the GPUs?",
	Subject:    report.SubjectGPU,
	IsFeatured: true,

	Flags: report.Flags{
		Calls:   true,
		AllRows: true,
		Usage:   map[string]string{"device": "only GPU `N` (NVML index)"},
	},
	Sections: Sections,
	Page:     HTMLSection,
	Run:      Run,
}

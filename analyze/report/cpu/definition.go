package cpu

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report cpu.
var Definition = report.Definition{
	Name:  "cpu",
	Short: "Show where threads spent time on the CPU and off it, with reasons and lines",
	Long: `cpu shows the time of threads on a processor, in the run queue, asleep and in
uninterruptible waits. It shows the waits of threads that launch work or wait for it, by
reason and by line, and estimates CPU time by line from samples. It also shows garbage
collections, holders of Python's GIL, CPU limits with throttling, disk input and the
pressure of the machine. The recording needs class host: gpurec record --host auto.`,
	Example: `  gpurec analyze cpu run.parquet
  gpurec analyze cpu --pid 4711 --from 10s --to 20s run.parquet
  gpurec analyze cpu --fail-on 'throttled_ns>1s || gc_ns>1s' run.parquet`,

	Question: "Where did threads spend time on the CPU and off it, and why?",
	Subject:  report.SubjectHost,

	Flags: report.Flags{
		Calls:  true,
		Frames: true,
		Sort:   "sort the waits by `COLUMN` (default: wait_ns)",
	},
	Sections: Sections,
	Page:     HTMLSection,
	Run:      Run,
}

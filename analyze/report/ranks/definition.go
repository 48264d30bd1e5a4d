package ranks

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report ranks.
var Definition = report.Definition{
	Name:  "ranks",
	Short: "Show which rank of a job the others wait for, since when and why",
	Long: `ranks compares the ranks of one job, step by step. It shows:

  - the rank for which the others wait, by how much a step, since when, and what the job
    gains without it
  - why: its host with the line, its copies, slower kernels with clocks and throttling,
    or more work
  - a network that became slow, if no rank is late
  - counts, sizes, bandwidth, transfer and waits of collectives

ranks finds the steps by the calls of NCCL. Record each host or each rank, and give all
recordings. Clocks of different hosts need not agree.

A rank is late if its own time is longer than that of ranks that do the same. The own time
is the step without waits. With GPU times (record --gpu-time auto), waits are collectives on
the GPU. Without them, waits are calls of the driver: late hosts are found, slow GPUs are not.
Record with --host auto to see what a late host did.`,
	Example: `  gpurec analyze ranks run.parquet
  gpurec analyze ranks node1.parquet node2.parquet
  gpurec analyze ranks run/
  gpurec analyze ranks --fail-on 'late_ranks>0' rank*.parquet`,

	Question:   "Which rank of a job do the others wait for, and why?",
	Subject:    report.SubjectFaults,
	IsFeatured: true,

	Recordings: report.WholeJob,
	Arguments:  "[FILE]...",
	Flags: report.Flags{Unsupported: []report.UnsupportedFlags{{
		Names: []string{"from", "to"}, When: report.InJob,
		Error: "--from and --to need one recording",
	}}},
	Sections: Sections,
	Page: report.HTMLSection{
		Title: "Ranks",
		About: "Which rank the other ranks wait for, and why. Operations of NCCL by communicator and size. The " +
			"lateness is the own time of a rank in a step, less the median of the ranks that do the same. The own " +
			"time is the step without waits.",
		Empty: "The recording has no ranks.",
		Chart: "ranks",
	},
	Run:    Run,
	RunJob: RunJob,
}

package kernels

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report kernels.
var Definition = report.Definition{
	Name:  "kernels",
	Short: "Show kernel launches by kernel, size, stream and call site",
	Long: `kernels shows kernel launches by kernel, by size (grid, block, shared memory), by stream
and by graph. It shows their rate, the CPU time of the launch calls, and launches that are
too small to fill the GPU. With GPU times it shows how long kernels and graphs ran, also by
line, with the error of each value.

--group-by shows the launches of a PyTorch program by the frames of their stacks:

  operator    innermost operator, with its overload, such as aten::add_Tensor
  autograd    innermost node of the autograd graph, such as AddmmBackward0
  module      classes of the modules in the stack, outermost first
  phase       forward, backward, optimizer or other`,
	Example: `  gpurec analyze kernels run.parquet
  gpurec analyze kernels --group-by operator run.parquet
  gpurec analyze kernels --kernel gemm --from 10s --to 11s run.parquet
  gpurec analyze kernels --sort tiny_launches --fail-on 'tiny_pct>50' run.parquet`,

	Question:   "Which kernels run, and how long (`record --gpu-time auto`)?",
	Subject:    report.SubjectGPU,
	IsFeatured: true,

	Recordings: report.EachRank,
	Flags: report.Flags{
		Calls:  true,
		Kernel: true,
		Source: true,
		Sort:   "sort kernels by `COLUMN` (default: GPU time, else launches)",
		GroupBy: &report.GroupFlag{
			Names: GroupNames(),
			Usage: "one row per `KEY`: operator, autograd, module or phase",
		},
	},
	Sections: Sections,
	Page:     HTMLSection,
	Needs:    NeededCallClasses,
	Run:      Run,
	Collect:  Collect,
}

package graphs

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gputime"
	"github.com/gpurec/gpurec/format"
)

// Definition declares the report graphs.
var Definition = report.Definition{
	Name:  "graphs",
	Short: "Show CUDA graphs: the line of their capture, their nodes, memory and launches",
	Long: `graphs shows one row for each executable CUDA graph: its nodes by type, the line that
captured it, and the driver memory that was allocated during the capture. It shows the
number of launches and the CPU time of a launch. With GPU times it also shows how long a
launch ran on the GPU.

Each instantiation of a graph has a row of its own. The nodes are known if the recording has
the calls that built the graph.`,
	Example: `  gpurec analyze graphs run.parquet
  gpurec analyze graphs --pid 4711 --sort captured_bytes run.parquet
  gpurec analyze graphs --fail-on 'unused_graphs>0' run.parquet`,

	Question: "Which CUDA graphs run, and what do they contain?",
	Subject:  report.SubjectGPU,

	Flags: report.Flags{
		Calls:  true,
		Source: true,
		Sort:   "sort by `COLUMN` (default: GPU time, else launches)",
		Hidden: []string{"min-bytes"},
	},
	Sections: []report.Section{
		{Title: "facts", Columns: factColumns},
		{Title: "graphs", Columns: graphColumns},
		{Title: "graphs with GPU times", Columns: gputime.Columns},
		{Title: "totals", Columns: totalColumns},
		{Title: "totals with GPU times", Columns: gputime.TotalColumns},
	},
	Needs:   neededCallClasses,
	Run:     Run,
	Collect: Collect,
}

// neededCallClasses are the classes of calls that the report needs. Calls that build graphs add nodes and lines.
var neededCallClasses = []string{format.RecordLaunch}

package blocks

import "github.com/gpurec/gpurec/analyze/report"

// Definition declares the report blocks.
var Definition = report.Definition{
	Name:  "blocks",
	Short: "Show which sizes of PyTorch's blocks grow, from readings without probes",
	Long: `blocks shows the blocks of PyTorch's caching allocators by size, private pool and stream. It
needs a recording with --blocks-every: gpurec then reads all blocks from the memory of the
process again and again. Each size has a verdict:

  growing  the bytes rise until the last reading
  steady   the bytes do not rise
  churn    the blocks come and go

The verdicts are those of "gpurec analyze leaks", with readings in place of events. Readings have
no stacks. If a size grows, record events for a minute: "gpurec analyze leaks" then names the lines.

A size without a verdict has too few readings: record longer, or read more often.`,
	Example: `  sudo gpurec record -p 4242 --allocator=off --blocks-every 1s -d 10m
  gpurec analyze blocks run.parquet
  gpurec analyze blocks --device 0 --top 50 run.parquet
  gpurec analyze blocks --fail-on 'growing>0 || grown_bytes>1GiB' run.parquet
  gpurec analyze blocks --format json run.parquet | jq .moments`,

	Question:   "Which sizes of PyTorch's blocks grow, without probes (`record --blocks-every`)?",
	Subject:    report.SubjectMemory,
	IsFeatured: true,

	Flags: report.Flags{
		Sort: "sort by `COLUMN` (default: verdict, then live bytes)",
	},
	Sections: Sections,
	Page:     HTMLSection,
	Run:      Run,
	Collect:  Collect,
}

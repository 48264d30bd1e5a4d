package hang

import (
	"errors"
	"time"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Definition declares the report hang.
var Definition = report.Definition{
	Name:  "hang",
	Short: "Show whether processes hang, in which call, and the events before",
	Long: `hang shows a verdict for every process and thread: hanging, waiting, polling, idle or
alive. The verdict is for the end of the recording, or for the time of --to. hang also
shows:

  - calls that have not returned, their stack and the object that they wait for
  - the last kernel launches of each stream
  - the GPU activity, and the Xids and errors before the hang
  - the outlier among equal processes
  - the rank that the others of a job wait for: it is missing, died, or calls something else

A process that was already hung when the recording started makes no calls. Its state
comes from the recorded stacks of its threads. Without stacks it is reported as "silent",
with advice where to look next.

With several files, hang compares the ranks of one job. Record each host or each rank, and
give all recordings, or a folder with them. The ranks need calls of NCCL in their
recordings. The order of events on different hosts is only as exact as their clocks agree.
hang bounds their difference by NTP and by collectives.`,
	Example: `  gpurec analyze hang run.parquet
  gpurec analyze hang node1.parquet node2.parquet
  gpurec analyze hang run/
  gpurec analyze hang --long 10s --to 5m --pid 4242 run.parquet
  gpurec analyze hang --fail-on 'hanging>0 || odd_processes>0' run.parquet`,

	Question:   "Does a process hang, and in which call?",
	Subject:    report.SubjectFaults,
	IsFeatured: true,

	Recordings: report.WholeJob,
	Flags: report.Flags{
		Calls:     true,
		Kernel:    true,
		Frames:    true,
		Sort:      "sort threads by `COLUMN` (default: verdict, then start time)",
		AllFrames: "show all frames of every stack",
		Unsupported: []report.UnsupportedFlags{
			{
				Names: []string{"from", "to"}, When: report.InJob,
				Error: "--from and --to need one recording: with several, hang reports their end",
			},
			{
				Names: []string{"rank", "container", "pid"}, When: report.InJob,
				Error: "--rank, --container and --pid need one recording: with several, hang compares all ranks",
			},
		},
	},
	Sections:  Sections,
	Page:      HTMLSection,
	Needs:     NeededCallClasses,
	Run:       Run,
	Collect:   Collect,
	RunJob:    RunJob,
	Configure: configure,
}

// configure registers --long.
func configure(flags report.FlagSet) report.Runner {
	var long time.Duration
	flags.DurationVar(
		&long,
		"long",
		time.Duration(DefaultLongCallNs),
		"minimum `TIME` without return or calls that counts as a hang",
	)
	flags.Check(func() error {
		if long <= 0 {
			return errors.New("--long must be more than 0")
		}
		return nil
	})
	return report.Runner{
		Run: func(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
			return RunWithOptions(t, Options{Options: opt, LongNs: int64(long)})
		},
		RunJob: func(j *job.Job, opt query.Options) (*report.Report, error) {
			return RunJobWithOptions(j, Options{Options: opt, LongNs: int64(long)})
		},
	}
}

package report

import (
	"fmt"
	"io"
	"time"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// Definition declares a report: its texts, its flags, its section of the HTML page, and how to compute it. The
// folder of a report has its Definition, and analyze.Reports lists them all. A Definition does not change.
type Definition struct {
	Name    string   // name on the command line: gpurec analyze NAME
	Aliases []string // former names, which the command line and the server accept and help does not list
	Short   string   // what the report shows, as one line of help
	Long    string   // what the report shows, as the help of its command
	Example string   // commands, one a line, each after two spaces

	// Question is the question that the report answers, for the tables of documents. Subject is the part of
	// the table that lists it.
	Question string
	Subject  Subject
	// IsFeatured adds the report to the table of README.md, which has only a selection.
	IsFeatured bool

	Recordings Recordings
	Arguments  string // arguments in the help, if they differ from those of Recordings
	Flags      Flags
	Sections   []Section   // tables and columns that --explain prints
	Page       HTMLSection // the report's section of the HTML page
	Needs      []string    // classes of calls that the report needs, see gpurec record --record

	// Run computes the report with the options common to all reports.
	Run RunFunc
	// Collect computes the report in the survey of several reports, with the same result as Run. It is nil for reports
	// that read the recording in another way.
	Collect CollectFunc
	// RunJob computes the report on several recordings of one job. It is nil unless Recordings is WholeJob.
	RunJob RunJobFunc
	// Configure registers the flags that only this report has. The returned functions compute the report with the
	// values of these flags. Configure is nil if the report has no such flags.
	Configure func(FlagSet) Runner
}

// RunFunc computes a report on one recording.
type RunFunc func(*timeline.Timeline, query.Options) (*Report, error)

// RunJobFunc computes a report on several recordings of one job.
type RunJobFunc func(*job.Job, query.Options) (*Report, error)

// Runner has the functions that compute a report with the values of its flags. RunJob may be nil.
type Runner struct {
	Run    RunFunc
	RunJob RunJobFunc
}

// Subject groups reports. Tables of documents have the reports in the order of their subjects.
type Subject int

// Subjects of reports.
const (
	SubjectOverview Subject = iota
	SubjectMemory
	SubjectFaults // hangs and errors
	SubjectGPU
	SubjectTime
	SubjectHost
	SubjectComparison
	SubjectExport
)

// Recordings states which recordings a report reads.
type Recordings int

// Values of Recordings.
const (
	OneRecording  Recordings = iota
	EachRank                 // one recording, or those of a job: then it is computed on each rank
	EachRecording            // one recording, or those of a job: then it is computed on each recording
	WholeJob                 // one recording, or those of a job: then RunJob computes it
)

// Flags declares which of the flags that several reports share a report has. Each report has the flags for the time
// window, processes and devices, for the output, --fail-on and --explain.
type Flags struct {
	Calls        bool // --tid, --stream and --min-bytes
	Kernel       bool // --kernel
	Suppressions bool // --suppressions
	Source       bool // --source, --debug-dir and --debuginfod
	Frames       bool // --max-frames, --hide-frames, and those of Source

	// The help of --sort, --all-frames and --all-stacks. "" means that the report lacks the flag.
	Sort, AllFrames, AllStacks string

	GroupBy *GroupFlag // --group-by, or nil
	AllRows bool       // the default of --top is all rows

	// Usage has other help for shared flags, by name. Hidden are shared flags that help does not list.
	Usage  map[string]string
	Hidden []string
	// Values are the words that the shell completes after a flag, by its name.
	Values map[string][]string
	// Unsupported are combinations of flags that are errors.
	Unsupported []UnsupportedFlags
}

// GroupFlag declares the flag --group-by.
type GroupFlag struct {
	Names   []string // known values
	Default string
	Usage   string // help of the flag
}

// UnsupportedFlags declares flags that a report rejects.
type UnsupportedFlags struct {
	Names []string // flags without dashes
	When  Situation
	Error string // text of the error
}

// Situation says when flags are rejected.
type Situation int

// Values of Situation.
const (
	Always Situation = iota
	InJob            // with several recordings of a job
	InDiff           // in a comparison of two recordings
)

// FlagSet registers the flags of a report. The methods for flags are those of pflag.FlagSet: help calls the value as
// the word in backquotes of usage.
type FlagSet interface {
	BoolVar(p *bool, name string, value bool, usage string)
	IntVar(p *int, name string, value int, usage string)
	StringVar(p *string, name, value, usage string)
	StringSliceVar(p *[]string, name string, value []string, usage string)
	DurationVar(p *time.Duration, name string, value time.Duration, usage string)
	// SizeVar registers a flag for a number of bytes, such as 512MiB. *p is set before Check's functions run.
	SizeVar(p *int64, name, value, usage string)
	// Check adds a function that checks the values before a recording is opened.
	Check(check func() error)
}

// FlagError is an error in the value of a flag that a RunFunc finds.
type FlagError struct{ Err error }

// FlagErrorf returns a *FlagError with a formatted text, which begins with the flag. The format may have %w.
func FlagErrorf(format string, args ...any) error { return &FlagError{fmt.Errorf(format, args...)} }

// Error returns the text of Err.
func (e *FlagError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *FlagError) Unwrap() error { return e.Err }

// OutputFile is a file that a report writes besides its tables, because a flag names it.
type OutputFile struct {
	Flag      string // flag that sets Path, with its dashes
	Path      string
	MayExist  bool   // replaces an existing file
	Content   string // names the content in a message, such as "3 address maps"
	WriteFunc func(io.Writer) error
}

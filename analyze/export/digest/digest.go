package digest

import (
	"fmt"
	"io"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
)

// Limits of the length of a digest in characters (runes).
const (
	DefaultMaxChars = 12_000
	MinMaxChars     = 1_000
)

// Formats are the formats of a digest, the default first.
var Formats = []string{"md", "json"}

// Options are the options of Collect and Write.
type Options struct {
	query.Filter
	// Name is the path of the recording in commands.
	Name string
	// Flags are added to each command, such as --from 10s.
	Flags []string
	// Progress, if not nil, is called with the name of each report before it runs.
	Progress func(step string)
}

// Digest is the content of a digest.
type Digest struct {
	Name string // path of the recording
	// Job describes the recorded programs and machine, Coverage what was recorded and what was lost.
	// The most important lines come first.
	Job, Coverage []Value
	// Findings are the problems, the most important one first.
	Findings []Finding
	// OmittedFindings is the number of findings that the reports left out.
	OmittedFindings int64
	Checks          []Check
	Notes           []string // of the recorder and the reports

	Totals  []report.Fact // of the report rules, for --fail-on
	Quality report.Quality
	NoMatch *query.NoMatchError
}

// Value is one value of a report.
type Value struct {
	Key   string // as in the JSON of the report; it ends in the unit
	Unit  report.Unit
	Value any // as in report.Row.Cells
	// From is the place of the value: the name of a report, #, and a JSON pointer (RFC 6901) into its JSON with
	// --top ReadRows. It is empty for values that come from the recording itself.
	From string
}

// Finding is one problem: a hit of a rule, or a verdict of a report that no rule repeats.
type Finding struct {
	Severity string // problem, notice or info
	Name     string // of the rule, or of the report
	From     string // row of a report, as in Value.From
	// What, Where, Confidence, Reasons and Advice are cells of that row. Value is nil for what it lacks.
	What, Where, Confidence, Reasons, Advice Value
	Evidence                                 []Row
	OmittedRows                              int64  // rows of evidence that the report left out
	Next                                     string // command that shows more
}

// Row is a row of a report.
type Row struct {
	From   string // as in Value.From
	Values []Value
}

// Check has the values of one report about the whole recording.
type Check struct {
	Report string
	// Found is the number of rows with a verdict about a problem.
	Found  int64
	Values []Value
	// Reason says why the report was not computed. It is empty if it was.
	Reason string
}

// Write writes the digest of a recording in a format of Formats, of at most maxChars characters. It
// returns the digest. Its errors are those of Collect and of out.
func Write(t *timeline.Timeline, out io.Writer, format string, maxChars int, opt Options) (*Digest, error) {
	d, err := Collect(t, opt)
	if err != nil {
		return nil, err
	}
	text, err := d.Text(format, maxChars)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(out, text)
	return d, err
}

// Text returns the digest in a format of Formats. It leaves out whole items until the text has at most
// maxChars characters, and says how many. It returns an error for an unknown format, or if maxChars is less than
// MinMaxChars. It replaces texts in d by quoted and shortened ones.
func (d *Digest) Text(format string, maxChars int) (string, error) {
	if maxChars < MinMaxChars {
		return "", fmt.Errorf("a digest needs at least %d characters", MinMaxChars)
	}
	d.quoteTexts()
	switch format {
	case "", "md":
		return d.fit(maxChars, d.markdown), nil
	case "json":
		return d.fit(maxChars, d.json), nil
	}
	return "", fmt.Errorf("unknown format %q; the formats are md and json", format)
}

// CountFindings returns the number of findings of a severity, without those that the reports left out.
func (d *Digest) CountFindings(severity string) (n int) {
	for i := range d.Findings {
		if d.Findings[i].Severity == severity {
			n++
		}
	}
	return n
}

package rows

import (
	"bufio"
	"io"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Format is the format of the output.
type Format uint8

// Values of Format.
const (
	CSV   Format = iota // quoted as in RFC 4180, with a header and line feeds
	JSONL               // one JSON object in each line
)

// Options select the rows and columns.
type Options struct {
	query.Filter
	Format  Format
	Classes []string // names of classes; none: all
	Kinds   []string // values of the column kind; none: all
	Columns []string // none: all
	// Stacks writes the text of its stack into each row that has one.
	Stacks bool
	// NoHeader leaves out the first line of CSV.
	NoHeader bool
}

// Stats describe the output.
type Stats struct {
	Rows    int64
	NoMatch *query.NoMatchError // why no row passes the filter; nil if a row passes
}

// WriteRows writes the selected rows of the recording, in the order of the file. It returns *NameError for
// columns and classes that do not exist, errors of reading the recording, and errors of out.
func WriteRows(t *timeline.Timeline, out io.Writer, opt Options) (*Stats, error) {
	columns, err := chooseColumns(opt.Columns)
	if err != nil {
		return nil, err
	}
	for _, name := range opt.Classes {
		if !slices.Contains(ListClasses(), name) {
			return nil, &NameError{What: "class", Name: name, Known: ListClasses()}
		}
	}
	w := &rowWriter{
		t: t, out: bufio.NewWriterSize(out, 1<<16), columns: columns, opt: &opt, seen: query.NewSeenCallers(),
		omitsEmpty: opt.Format == JSONL && len(opt.Columns) == 0,
	}
	if opt.Stacks {
		if err := w.readStacks(t.Rec); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	if opt.Format == CSV && !opt.NoHeader {
		w.writeHeader()
	}
	for _, g := range t.Rec.Groups() {
		if len(opt.Classes) > 0 && !slices.Contains(opt.Classes, g.Class().String()) {
			continue
		}
		if err := w.writeGroup(g); err != nil {
			return nil, err
		}
	}
	stats := &Stats{Rows: w.rows}
	if w.rows == 0 && opt.SelectsCallers() {
		stats.NoMatch = w.seen.ExplainNoMatch(&opt.Filter)
	}
	return stats, w.out.Flush()
}

// readStacks reads and encodes the texts of all stacks.
func (w *rowWriter) readStacks(rec *format.Recording) error {
	w.stacks = make(map[int32][]byte)
	return rec.Rows(func(r *format.Row) error {
		if r.Kind == format.KindStack {
			w.stacks[r.StackID] = w.opt.Format.appendText(nil, r.Stack)
		}
		return nil
	}, format.ClassStack)
}

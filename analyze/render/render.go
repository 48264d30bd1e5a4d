package render

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
)

// Options are the options of WriteReport.
type Options struct {
	// Format is one of the names that ListFormats returns. An empty format means the first one,
	// "table".
	Format string
	// Width is the width of the terminal in characters. Longer lines of text are cut or wrapped. 0
	// means no limit.
	Width int
	// NoHeader leaves out column headings in text, CSV and Markdown.
	NoHeader bool
	// Color adds ANSI escape sequences that colour verdicts and severities in text.
	Color bool
	// ASCII replaces gpurec's own non-ASCII characters in text. Names from the recording stay.
	ASCII bool
}

// ListFormats lists the names of the formats that WriteReport supports, the default first.
func ListFormats() []string { return []string{"table", "json", "csv", "md"} }

// UnknownFormatError is returned for the name of a format that WriteReport does not support.
type UnknownFormatError struct{ Name string }

func (e *UnknownFormatError) Error() string {
	return fmt.Sprintf("unknown format %q; the formats are %s", e.Name, strings.Join(ListFormats(), ", "))
}

// WriteReport writes a report to out. Text and Markdown are for people: values have readable units,
// and control characters are replaced. JSON and CSV are for programs: numbers have no unit suffix,
// and no text is cut. WriteReport returns a *UnknownFormatError for an unknown format, or an error
// of out.
func WriteReport(out io.Writer, r *report.Report, opt Options) error {
	if err := CheckFormat(opt.Format); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	var err error
	switch opt.Format {
	case "json":
		err = writeJSON(w, r)
	case "csv":
		err = writeCSV(w, r, opt)
	case "md":
		writeMarkdown(w, r, opt)
	default:
		if !opt.ASCII {
			writeText(w, r, opt)
			break
		}
		var text strings.Builder
		buffer := bufio.NewWriter(&text)
		writeText(buffer, r, opt)
		if err = buffer.Flush(); err == nil {
			_, err = asciiReplacer.WriteString(w, text.String())
		}
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// CheckFormat returns a *UnknownFormatError if WriteReport does not support the format.
func CheckFormat(name string) error {
	if name == "" || slices.Contains(ListFormats(), name) {
		return nil
	}
	return &UnknownFormatError{name}
}

// WriteTable writes only a table, as WriteReport does in text: without the table's title, stacks and evidence.
func WriteTable(out io.Writer, t *report.Table, opt Options) error {
	var text strings.Builder
	buffer := bufio.NewWriter(&text)
	writeTextTable(buffer, t, opt)
	if err := buffer.Flush(); err != nil {
		return err
	}
	if opt.ASCII {
		_, err := asciiReplacer.WriteString(out, text.String())
		return err
	}
	_, err := io.WriteString(out, text.String())
	return err
}

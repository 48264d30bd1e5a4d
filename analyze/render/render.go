package render

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
)

// Options say what a report looks like.
type Options struct {
	// Format is one of Formats; "" is the first.
	Format string
	// Width is the width of the terminal in characters; 0 does not cut lines.
	Width int
	// NoHeader leaves out headings (table, csv, md).
	NoHeader bool
	// Color paints verdicts and severities in tables for terminals.
	Color bool
	// ASCII draws tables without characters that only UTF-8 has, as far as they are gpurec's own.
	ASCII bool
}

// Formats lists the formats that Render knows, the default first.
func Formats() []string { return []string{"table", "json", "csv", "md"} }

// FormatError says that Render does not know a format.
type FormatError struct{ Name string }

func (e *FormatError) Error() string {
	return fmt.Sprintf("unknown format %q; there are %s", e.Name, strings.Join(Formats(), ", "))
}

// Write writes a report. Text and Markdown are for people: units are chosen, lines
// cut to the width, characters that could steer a terminal replaced. JSON and CSV
// are for programs: bare numbers, whole strings. The only errors are *FormatError
// and those of out.
func Write(out io.Writer, r *report.Report, opt Options) error {
	if err := CheckFormat(opt.Format); err != nil {
		return err
	}
	w := bufio.NewWriter(out)
	var err error
	switch opt.Format {
	case "json":
		err = renderJSON(w, r)
	case "csv":
		err = renderCSV(w, r, opt)
	case "md":
		renderMarkdown(w, r, opt)
	default:
		if !opt.ASCII {
			renderText(w, r, opt)
			break
		}
		var text strings.Builder
		all := bufio.NewWriter(&text)
		renderText(all, r, opt)
		if err = all.Flush(); err == nil {
			_, err = asciiForms.WriteString(w, text.String())
		}
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// CheckFormat returns a *FormatError if Render does not know the format.
func CheckFormat(name string) error {
	if name == "" || slices.Contains(Formats(), name) {
		return nil
	}
	return &FormatError{name}
}

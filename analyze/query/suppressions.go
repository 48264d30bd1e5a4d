package query

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Suppressions say which memory is known to stay and is not to be reported: a file as
// LeakSanitizer reads it, so that one can serve both. Each line is
//
//	leak:PATTERN
//
// and names memory with a frame in its stack whose function, source file or module
// matches. A pattern may begin and end anywhere in the name; * stands for anything, ^ for
// the beginning and $ for the end. Lines that begin with # are comments.
type Suppressions struct {
	Patterns []Suppression
}

// Suppression is one line. Its parts lie in a name in this order, without overlapping.
type Suppression struct {
	Text       string // as it was written, after leak:
	parts      []string
	begin, end bool // ^ and $
}

// SuppressionError says which line of a file of suppressions cannot be read.
type SuppressionError struct {
	Path string
	Line int
	Text string
	Why  string
}

func (e *SuppressionError) Error() string {
	return fmt.Sprintf("%s:%d: %q: %s", e.Path, e.Line, e.Text, e.Why)
}

// Bounds of what is read: a file of suppressions is written by hand.
const (
	maxSuppressions    = 10_000
	maxSuppressionLine = 4096
)

// ParseSuppressions reads a file of suppressions; path is its name in errors. It returns a
// *SuppressionError for a line that means nothing here.
func ParseSuppressions(path string, in io.Reader) (*Suppressions, error) {
	s := new(Suppressions)
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, maxSuppressionLine), maxSuppressionLine)
	number := 0
	for lines.Scan() {
		number++
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		one, why := parseSuppression(text)
		if why == "" && len(s.Patterns) == maxSuppressions {
			why = fmt.Sprintf("more than %s suppressions", units.Count(maxSuppressions))
		}
		if why != "" {
			return nil, &SuppressionError{path, number, units.Cut(units.OneLine(text), 80), why}
		}
		s.Patterns = append(s.Patterns, one)
	}
	if lines.Err() == bufio.ErrTooLong {
		return nil, &SuppressionError{
			path,
			number + 1,
			"",
			fmt.Sprintf("the line is longer than %d bytes", maxSuppressionLine),
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read suppressions: %w", err)
	}
	return s, nil
}

// parseSuppression reads a line; why says what is wrong with it, or is empty.
func parseSuppression(text string) (one Suppression, why string) {
	kind, pattern, ok := strings.Cut(text, ":")
	switch {
	case !ok:
		return one, "write it as leak:PATTERN"
	case kind != "leak":
		return one, fmt.Sprintf("%q is no kind of suppression; there is leak", kind)
	}
	one.Text = strings.TrimSpace(pattern)
	rest := one.Text
	rest, one.begin = strings.CutPrefix(rest, "^")
	rest, one.end = strings.CutSuffix(rest, "$")
	for _, part := range strings.Split(rest, "*") {
		if part != "" {
			one.parts = append(one.parts, part)
		}
	}
	// What matches everything would hide every leak: nobody means that.
	if len(one.parts) == 0 {
		return one, "the pattern matches everything"
	}
	one.begin = one.begin && !strings.HasPrefix(rest, "*")
	one.end = one.end && !strings.HasSuffix(rest, "*")
	return one, ""
}

// Matches reports whether the pattern occurs in a name. Each part is looked for as early
// as it can be, the last one, if it is bound to the end, there.
func (s *Suppression) Matches(name string) bool {
	parts := s.parts
	if s.begin {
		rest, ok := strings.CutPrefix(name, parts[0])
		if !ok {
			return false
		}
		if name, parts = rest, parts[1:]; len(parts) == 0 {
			// "^a$" has one part that is both; "^a*$" is not bound to the end.
			return !s.end || name == ""
		}
	}
	if s.end {
		last := len(parts) - 1
		rest, ok := strings.CutSuffix(name, parts[last])
		if !ok {
			return false
		}
		name, parts = rest, parts[:last]
	}
	for _, part := range parts {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return true
}

// MatchesFrame reports whether the pattern names a frame: its function, demangled or as in
// the ELF file, its source file, or the path of its module.
func (s *Suppression) MatchesFrame(f *format.Frame) bool {
	for _, name := range [...]string{f.Func, f.SystemName, f.File, f.Module} {
		if name != "" && s.Matches(name) {
			return true
		}
	}
	return false
}

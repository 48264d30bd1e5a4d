package query

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Suppressions exclude memory that is expected to stay from leak reports. The file format is that
// of LeakSanitizer, so both tools can share one file. Each line is
//
//	leak:PATTERN
//
// and matches memory with a frame in its stack whose function, source file or module matches. A
// pattern matches any part of the name. * matches any text, ^ the start and $ the end of the name.
// Lines that start with # are comments.
type Suppressions struct {
	Patterns []Suppression
}

// Suppression is one line of a suppressions file. Its parts occur in a matching name in this order, without overlap.
type Suppression struct {
	Text       string // the pattern as written after "leak:"
	parts      []string
	begin, end bool // the pattern starts with ^, ends with $
}

// SuppressionError is the error for a line of a suppressions file that cannot be parsed.
type SuppressionError struct {
	Path string
	Line int
	Text string
	Why  string
}

// Error returns the message with path, line number and reason.
func (e *SuppressionError) Error() string {
	return fmt.Sprintf("%s:%d: %q: %s", e.Path, e.Line, e.Text, e.Why)
}

// Limits of a suppressions file.
const (
	maxSuppressions         = 10_000
	maxSuppressionLineBytes = 4096
)

// ParseSuppressions reads a suppressions file; path is its name in errors. It returns a
// *SuppressionError for an invalid line.
func ParseSuppressions(path string, in io.Reader) (*Suppressions, error) {
	s := new(Suppressions)
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, maxSuppressionLineBytes), maxSuppressionLineBytes)
	number := 0
	for lines.Scan() {
		number++
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		pattern, why := parseSuppression(text)
		if why == "" && len(s.Patterns) == maxSuppressions {
			why = fmt.Sprintf("more than %s suppressions", units.FormatCount(maxSuppressions))
		}
		if why != "" {
			return nil, &SuppressionError{path, number, units.ShortenText(units.SanitizeText(text), 80), why}
		}
		s.Patterns = append(s.Patterns, pattern)
	}
	if lines.Err() == bufio.ErrTooLong {
		return nil, &SuppressionError{
			path,
			number + 1,
			"",
			fmt.Sprintf("the line is longer than %d bytes", maxSuppressionLineBytes),
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read suppressions: %w", err)
	}
	return s, nil
}

// parseSuppression parses one line of a suppressions file. why is the reason why the line is invalid, or "".
func parseSuppression(text string) (s Suppression, why string) {
	kind, pattern, ok := strings.Cut(text, ":")
	switch {
	case !ok:
		return s, "write it as leak:PATTERN"
	case kind != "leak":
		return s, fmt.Sprintf("%q is not a known suppression type; use leak:PATTERN", kind)
	}
	s.Text = strings.TrimSpace(pattern)
	rest := s.Text
	rest, s.begin = strings.CutPrefix(rest, "^")
	rest, s.end = strings.CutSuffix(rest, "$")
	for _, part := range strings.Split(rest, "*") {
		if part != "" {
			s.parts = append(s.parts, part)
		}
	}
	// A pattern that matches everything would hide every leak, so it is an error.
	if len(s.parts) == 0 {
		return s, "the pattern matches everything"
	}
	s.begin = s.begin && !strings.HasPrefix(rest, "*")
	s.end = s.end && !strings.HasSuffix(rest, "*")
	return s, ""
}

// MatchesName reports whether the pattern matches a name. It searches each part at its first
// possible position. A last part bound to the end is searched there.
func (s *Suppression) MatchesName(name string) bool {
	parts := s.parts
	if s.begin {
		rest, ok := strings.CutPrefix(name, parts[0])
		if !ok {
			return false
		}
		if name, parts = rest, parts[1:]; len(parts) == 0 {
			// "^a$" has one part that is both first and last; in "^a*$" the part is not bound to
			// the end.
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

// MatchesFrame reports whether the pattern matches a frame. It compares the function, demangled and
// as in the ELF file, the source file, and the path of the module.
func (s *Suppression) MatchesFrame(f *format.Frame) bool {
	for _, name := range [...]string{f.Func, f.SystemName, f.File, f.Module} {
		if name != "" && s.MatchesName(name) {
			return true
		}
	}
	return false
}

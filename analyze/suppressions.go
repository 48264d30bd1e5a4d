package analyze

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

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
	patterns []suppression
}

// suppression is one line. Its parts lie in a name in this order, without overlapping.
type suppression struct {
	text       string // as it was written, after leak:
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
		if why == "" && len(s.patterns) == maxSuppressions {
			why = fmt.Sprintf("more than %s suppressions", thousands(maxSuppressions))
		}
		if why != "" {
			return nil, &SuppressionError{path, number, cut(oneLine(text), 80), why}
		}
		s.patterns = append(s.patterns, one)
	}
	if lines.Err() == bufio.ErrTooLong {
		return nil, &SuppressionError{path, number + 1, "", fmt.Sprintf("the line is longer than %d bytes", maxSuppressionLine)}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read suppressions: %w", err)
	}
	return s, nil
}

// parseSuppression reads a line; why says what is wrong with it, or is empty.
func parseSuppression(text string) (one suppression, why string) {
	kind, pattern, ok := strings.Cut(text, ":")
	switch {
	case !ok:
		return one, "write it as leak:PATTERN"
	case kind != "leak":
		return one, fmt.Sprintf("%q is no kind of suppression; there is leak", kind)
	}
	one.text = strings.TrimSpace(pattern)
	rest := one.text
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

// matches reports whether the pattern occurs in a name. Each part is looked for as early
// as it can be, the last one, if it is bound to the end, there.
func (s *suppression) matches(name string) bool {
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

// matchesFrame reports whether the pattern names a frame: its function, demangled or as in
// the ELF file, its source file, or the path of its module.
func (s *suppression) matchesFrame(f *format.Frame) bool {
	for _, name := range [...]string{f.Func, f.SystemName, f.File, f.Module} {
		if name != "" && s.matches(name) {
			return true
		}
	}
	return false
}

// suppressor applies suppressions to the stacks of one recording, and counts what they
// hid. A nil suppressor suppresses nothing.
type suppressor struct {
	t       *Timeline
	list    []suppression
	byStack map[int32]int32 // 1 + the suppression that matches; 0: none
	bySite  map[string]int32
	hidden  []suppressedMemory // by suppression
}

// suppressedMemory is live memory that a suppression hid.
type suppressedMemory struct{ count, bytes int64 }

func (t *Timeline) newSuppressor(s *Suppressions) *suppressor {
	if s == nil || len(s.patterns) == 0 {
		return nil
	}
	return &suppressor{t: t, list: s.patterns, byStack: make(map[int32]int32), bySite: make(map[string]int32), hidden: make([]suppressedMemory, len(s.patterns))}
}

// of returns the first suppression that matches an allocation: a frame of its stack, or
// the site alone where no stack was recorded; false if none does.
func (s *suppressor) of(origin int32) (int, bool) {
	if s == nil {
		return 0, false
	}
	stack := s.t.origins.list[origin].stack
	if stack == 0 {
		return s.ofSite(s.t.siteLabel(origin))
	}
	known, ok := s.byStack[stack]
	if !ok {
		known = s.ofFrames(s.t.stacks.stacks[stack])
		s.byStack[stack] = known
	}
	return int(known) - 1, known > 0
}

func (s *suppressor) ofFrames(stack []int32) int32 {
	for i := range s.list {
		if slices.ContainsFunc(stack, func(id int32) bool { return s.list[i].matchesFrame(&s.t.stacks.frames[id]) }) {
			return int32(i) + 1
		}
	}
	return 0
}

func (s *suppressor) ofSite(site string) (int, bool) {
	known, ok := s.bySite[site]
	if !ok {
		known = int32(slices.IndexFunc(s.list, func(one suppression) bool { return one.matches(site) })) + 1
		s.bySite[site] = known
	}
	return int(known) - 1, known > 0
}

// never counts live memory that a suppression hides.
func (s *suppressor) never(which int, b *block) {
	s.hidden[which].count++
	s.hidden[which].bytes += b.bytes
}

// total sums up what was hidden.
func (s *suppressor) total() (sum suppressedMemory) {
	if s == nil {
		return sum
	}
	for _, h := range s.hidden {
		sum.count += h.count
		sum.bytes += h.bytes
	}
	return sum
}

var suppressedColumns = []Column{
	{"count", "count", UnitCount, "blocks that were live at the end and that the suppression hid: they are in no other number"},
	{"bytes", "bytes", UnitCount, "bytes of these"},
	{"template", "template", UnitText, "the suppression, as it stands in the file of --suppressions"},
}

// table lists the suppressions that hid live memory, as LeakSanitizer does.
func (s *suppressor) table() Table {
	table := Table{Name: "suppressions_used", Title: "Suppressions used:", Columns: suppressedColumns, Aside: true, Keys: []string{"template"}}
	if s == nil {
		return table
	}
	for i, h := range s.hidden {
		if h.count > 0 {
			table.Rows = append(table.Rows, Row{Cells: []any{h.count, h.bytes, s.list[i].text}})
		}
	}
	slices.SortStableFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[1], b.Cells[1]), compareCells(a.Cells[0], b.Cells[0]))
	})
	return table
}

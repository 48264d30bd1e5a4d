package digest

import (
	"sort"
	"unicode/utf8"
)

// amount is how much of a digest is shown: the largest number of items of each kind.
type amount struct {
	evidence int // rows of each finding
	findings int
	checks   int
	job      int // lines
	coverage int
	notes    int
}

// step lowers one number of an amount to a floor.
type step struct {
	field func(*amount) *int
	floor int
}

// steps lower an amount, the least important items first.
var steps = []step{
	{func(a *amount) *int { return &a.evidence }, 3},
	{func(a *amount) *int { return &a.notes }, 3},
	{func(a *amount) *int { return &a.findings }, 12},
	{func(a *amount) *int { return &a.evidence }, 1},
	{func(a *amount) *int { return &a.findings }, 6},
	{func(a *amount) *int { return &a.checks }, 0},
	{func(a *amount) *int { return &a.notes }, 0},
	{func(a *amount) *int { return &a.job }, 6},
	{func(a *amount) *int { return &a.coverage }, 4},
	{func(a *amount) *int { return &a.findings }, 3},
	{func(a *amount) *int { return &a.job }, 2},
	{func(a *amount) *int { return &a.findings }, 1},
	{func(a *amount) *int { return &a.evidence }, 0},
	{func(a *amount) *int { return &a.job }, 0},
	{func(a *amount) *int { return &a.coverage }, 1},
	{func(a *amount) *int { return &a.findings }, 0},
	{func(a *amount) *int { return &a.coverage }, 0},
}

// maxEvidenceRows is the largest number of rows of evidence of a finding. The reports have the others.
const maxEvidenceRows = 6

// fit returns the digest with as many items as maxChars allows.
func (d *Digest) fit(maxChars int, render func(*amount) string) string {
	a := amount{
		findings: len(d.Findings), checks: len(d.Checks), job: len(d.Job), coverage: len(d.Coverage),
		notes: len(d.Notes),
	}
	for i := range d.Findings {
		a.evidence = min(maxEvidenceRows, max(a.evidence, len(d.Findings[i].Evidence)))
	}
	fits := func() (text string, ok bool) {
		text = render(&a)
		return text, utf8.RuneCountInString(text) <= maxChars
	}
	if text, ok := fits(); ok {
		return text
	}
	for _, s := range steps {
		field := s.field(&a)
		most := *field
		*field = min(most, s.floor)
		if _, ok := fits(); !ok {
			continue
		}
		// The largest number that fits is between the floor and one less than before.
		more := sort.Search(most-*field, func(n int) bool {
			*field = s.floor + n + 1
			_, ok := fits()
			return !ok
		})
		*field = min(most, s.floor) + more
		break
	}
	return render(&a)
}

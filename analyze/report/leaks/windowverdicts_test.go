package leaks_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/internal/testclass"
)

// windowPrograms is the number of random programs that are cut into windows; `make verdicts` sets more.
func windowPrograms() uint64 {
	if os.Getenv("GPUREC_VERDICTS") == "1" {
		return 504
	}
	return 6
}

const (
	unseenSite = "(site not seen)"
	// wellSeen is the expected number of times that windows see a leak above which it must be found, and enoughWindows
	// that of windows.
	wellSeen, enoughWindows = 25, 12
)

// windowCut returns the windows of a test: 9 combinations of length and share.
func windowCut(i uint64) analyzetest.AllocatorWindows {
	return analyzetest.AllocatorWindows{
		Seed:     i,
		WindowNs: []int64{50, 100, 250}[i%3] * analyzetest.Ms,
		Share:    []float64{0.03, 0.1, 0.25}[i/3%3],
		Refused:  0.05,
	}
}

// windowScore counts the verdicts on programs in windows.
type windowScore struct {
	found, inside, wrong int // growing rows with a leak, those with the true rate, and those without a leak
	wellSeen, wellFound  int // leaks that windows saw well, and those of them with the verdict growing
	missed               int
}

// add compares the verdicts on a program in windows with its leaks.
func (s *windowScore) add(t *testing.T, what string, p *steppedProgram, cut analyzetest.AllocatorWindows) {
	t.Helper()
	p.recording.CutIntoWindows(cut)
	r, err := leaks.Run(p.recording.Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]bool)
	for i := range r.Tables[0].Rows {
		site := analyzetest.CellValue(t, r, i, "site").(string)
		if analyzetest.CellValue(t, r, i, "verdict") != "growing" || site == unseenSite && len(p.leaks) > 0 {
			continue
		}
		l := p.leaks[site]
		if l == nil {
			s.wrong++
			t.Errorf("%s: %s (%s) does not grow: %s", what, site, p.kinds[site], r.Tables[0].Rows[i].Evidence)
			continue
		}
		found[site] = true
		s.addRate(t, r, i, l, fmt.Sprintf("%s: %s (%s)", what, site, p.kinds[site]))
	}
	for site, l := range p.leaks {
		isWellSeen := float64(l.times)*cut.Share*0.75 >= wellSeen &&
			float64(programEnd)*cut.Share/float64(cut.WindowNs) >= enoughWindows
		switch {
		case !found[site]:
			s.missed++
			if isWellSeen {
				s.wellSeen++
				t.Logf("%s: %s (%s) grows", what, site, p.kinds[site])
			}
		case isWellSeen:
			s.wellSeen++
			s.wellFound++
		}
	}
}

// addRate compares the growth of a row with that of its leak.
func (s *windowScore) addRate(t *testing.T, r *report.Report, row int, l *knownLeak, what string) {
	t.Helper()
	s.found++
	rate := float64(analyzetest.CellValue(t, r, row, "growth_bytes_per_min").(int64))
	margin := float64(analyzetest.CellValue(t, r, row, "growth_plus_minus_bytes_per_min").(int64))
	if margin <= 0 || margin > rate/2+1 {
		t.Errorf("%s: the margin of %.0f is %.0f", what, rate, margin)
	}
	if math.Abs(rate-l.perMinute()) <= margin {
		s.inside++
	} else {
		t.Logf("%s: %.0f ± %.0f bytes/min, but leaks %.0f", what, rate, margin, l.perMinute())
	}
}

// check compares the counts with the limits: 95 % of the rates within their margins, 95 % of the leaks found.
func (s *windowScore) check(t *testing.T) {
	t.Helper()
	t.Logf(
		"%d rows growing, %d rates within their margins, %d falsely growing; %d of %d well-seen leaks found, %d missed",
		s.found+s.wrong,
		s.inside,
		s.wrong,
		s.wellFound,
		s.wellSeen,
		s.missed,
	)
	if s.found == 0 || s.wellSeen == 0 {
		t.Error("the programs have no leaks")
	}
	if float64(s.found-s.inside) > max(1, 0.05*float64(s.found)) {
		t.Errorf("%d of %d rates are outside of their margins", s.found-s.inside, s.found)
	}
	if float64(s.wellSeen-s.wellFound) > max(1, 0.05*float64(s.wellSeen)) {
		t.Errorf("%d of %d leaks that windows saw well are missing", s.wellSeen-s.wellFound, s.wellSeen)
	}
}

// TestVerdictsOfProgramsInWindows cuts recordings of random programs with known leaks into windows.
func TestVerdictsOfProgramsInWindows(t *testing.T) {
	testclass.Unit(t)
	var score windowScore
	for i := range windowPrograms() {
		cut := windowCut(i)
		score.add(t, fmt.Sprintf("program %d, windows of %d ms, %.0f%%", i, cut.WindowNs/1e6, 100*cut.Share),
			newSteppedProgram(t, 1000+i), cut)
	}
	score.check(t)
}

// TestVerdictsOfScenariosInWindows cuts the scenarios of examples/verdicts, rebuilt on PyTorch's allocator, into windows.
func TestVerdictsOfScenariosInWindows(t *testing.T) {
	testclass.Unit(t)
	var score windowScore
	cuts := uint64(1)
	if os.Getenv("GPUREC_VERDICTS") == "1" {
		cuts = 9
	}
	for k, s := range windowScenarios {
		for i := range cuts {
			if cuts == 1 {
				if k%6 != 0 {
					break
				}
				i = 4
			}
			cut := windowCut(i)
			score.add(t, fmt.Sprintf("%s, windows of %d ms, %.0f%%", s.name, cut.WindowNs/1e6, 100*cut.Share),
				newScenario(t, uint64(k), s), cut)
		}
	}
	score.check(t)
}

// TestVerdictsOfSteppedPrograms judges the same programs by complete recordings.
func TestVerdictsOfSteppedPrograms(t *testing.T) {
	testclass.Unit(t)
	for i := range windowPrograms() / 3 {
		p := newSteppedProgram(t, 1000+i)
		r, err := leaks.Run(p.recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for k := range r.Tables[0].Rows {
			site := analyzetest.CellValue(t, r, k, "site").(string)
			if says := analyzetest.CellValue(t, r, k, "verdict") == "growing"; says && p.leaks[site] == nil {
				t.Errorf("program %d: %s (%s) does not grow", i, site, p.kinds[site])
			}
		}
	}
}

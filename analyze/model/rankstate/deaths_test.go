package rankstate

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/model/waitgraph"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestFirstDeath checks which rank is the reason of the ends of all ranks.
func TestFirstDeath(t *testing.T) {
	testclass.Unit(t)
	const ms = 1_000_000
	code := func(n int) *int { return &n }
	killed, failed, asked := Rank{ExitSignal: 9}, Rank{ExitCode: code(1)}, Rank{ExitSignal: 15}
	for name, c := range map[string]struct {
		ends    []Rank  // by rank
		atMs    []int64 // of the ends; 0: it is alive
		entered []int64 // operations that it called
		want    int     // -1: none
	}{
		"killed":                  {[]Rank{asked, killed, asked}, []int64{300, 100, 310}, []int64{42, 41, 42}, 1},
		"failed":                  {[]Rank{asked, failed}, []int64{900, 100}, []int64{42, 42}, 1},
		"all fail at once":        {[]Rank{failed, failed}, []int64{101, 100}, []int64{42, 42}, -1},
		"asked to end":            {[]Rank{asked, asked}, []int64{300, 100}, []int64{42, 41}, -1},
		"ended as they should":    {[]Rank{{ExitCode: code(0)}, {ExitCode: code(0)}}, []int64{300, 100}, []int64{42, 41}, -1},
		"unknown, behind":         {[]Rank{{}, {}}, []int64{300, 100}, []int64{42, 41}, 1},
		"unknown, not behind":     {[]Rank{{}, {}}, []int64{300, 100}, []int64{42, 42}, -1},
		"the others are alive":    {[]Rank{{}, killed}, []int64{0, 100}, []int64{42, 41}, -1},
		"the others end later on": {[]Rank{asked, killed}, []int64{90_000, 100}, []int64{42, 41}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			s := &State{Graph: &waitgraph.Job{ClockErrorNs: func(_, _ int) int64 { return 0 }}}
			g := waitgraph.Communicator{ID: 7, Entered: c.entered}
			for i := range c.ends {
				rank := c.ends[i]
				rank.DeadNs = c.atMs[i] * ms
				s.Ranks = append(s.Ranks, rank)
				g.Members = append(g.Members, i)
			}
			s.Graph.Communicators = []waitgraph.Communicator{g}
			got := -1
			if d := s.findFirstDeath(); d != nil {
				got = d.Rank
			}
			if got != c.want {
				t.Errorf("rank %d, want %d", got, c.want)
			}
		})
	}
}

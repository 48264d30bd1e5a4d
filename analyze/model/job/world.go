package job

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/collective"
)

// worldCommunicator is the communicator of all processes of a job, whose ranks are those of the job. ID 0: none is
// known.
type worldCommunicator struct {
	id   int64
	size int32
}

// findWorld returns the communicator that gives the ranks of processes without a rank in their environment. Each
// process votes for its largest communicator, and for the first made of these; the communicator with the most votes
// wins.
func findWorld(list []contents) worldCommunicator {
	votes := make(map[worldCommunicator]int)
	for i := range list {
		voted := make(map[int32]worldCommunicator)
		for k := range list[i].communicators { // ordered by the time when they were made
			c := &list[i].communicators[k]
			if isNamed(c) && c.Size > voted[c.Pid].size {
				voted[c.Pid] = worldCommunicator{c.ID, c.Size}
			}
		}
		for _, w := range voted {
			votes[w]++
		}
	}
	var best worldCommunicator
	for w, n := range votes {
		order := cmp.Or(
			cmp.Compare(w.size, best.size),
			cmp.Compare(n, votes[best]),
			cmp.Compare(uint64(w.id), uint64(best.id)),
		)
		if order > 0 {
			best = w
		}
	}
	return best
}

// isNamed reports whether rank, size and identity of a communicator are known.
func isNamed(c *collective.Communicator) bool {
	return c.ID != 0 && c.Size > 0 && c.Rank >= 0 && c.Rank < c.Size
}

// setRank sets the rank of a process from its communicators. It returns false if the process has none. The rank of a
// process that is several ranks of the communicator, or none, is unknown; so is it if the environment has another
// size.
func (w *worldCommunicator) setRank(m *Member, list []collective.Communicator) bool {
	var ranks []int32
	isMember := false
	for i := range list {
		c := &list[i]
		if c.Pid != m.Pid || !isNamed(c) {
			continue
		}
		isMember = true
		if c.ID == w.id && c.Size == w.size && !slices.Contains(ranks, c.Rank) {
			ranks = append(ranks, c.Rank)
		}
	}
	if len(ranks) == 1 && (m.WorldSize == 0 || m.WorldSize == int(w.size)) {
		m.Rank, m.WorldSize, m.RankSource = int(ranks[0]), int(w.size), RankByNCCL
	}
	return isMember
}

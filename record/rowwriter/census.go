//go:build linux

package rowwriter

import (
	"maps"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/communicator"
)

// ProcessCensus has the communicators of a process at one time, as NCCL lists them.
type ProcessCensus struct {
	Pid           int
	AtNs          int64 // Unix ns
	Communicators []communicator.Found
}

// maxWaitingCensuses is the largest number of censuses that wait for the row writer.
const maxWaitingCensuses = 256

// SendCensus passes a census to the row writer. It never blocks: if too many wait, it drops the census and counts it as
// a lost row of class host. Safe for concurrent use; not to be called after Wait.
func (w *Writer) SendCensus(c ProcessCensus) {
	select {
	case w.censuses <- c:
	default:
		w.CountLostHost(1)
	}
}

// writeWaitingCensuses writes all censuses that wait.
func (w *Writer) writeWaitingCensuses() {
	for {
		select {
		case c := <-w.censuses:
			w.addCensus(&c)
		default:
			return
		}
	}
}

// addCensus notes the counts of the communicators of a process. Communicators without a recorded call get facts.
func (w *Writer) addCensus(census *ProcessCensus) {
	for i := range census.Communicators {
		f := &census.Communicators[i]
		key := communicatorKey{uint32(census.Pid), f.Address}
		c := w.communicators[key]
		if c == nil || c.isUncalled && c.id != int64(f.Hash) { // another one at the address
			if c == nil && len(w.communicators) >= maxCommunicators {
				continue
			}
			c = &knownCommunicator{communicatorKey: key, fromNs: census.AtNs, device: -1, isUncalled: true}
			c.fact.How, c.fact.Numbering = format.CommunicatorOlder, format.NumberingRelative
			w.communicators[key] = c
		}
		if c.isUncalled {
			c.setUncalled(f)
		}
		if c.id == int64(f.Hash) && f.HasCounts && f.Size > 1 {
			c.setCensus(newCensus(&f.State, census.AtNs), f.IsMoving)
		}
		if c.isUncalled {
			w.writeCommunicator(c)
		}
	}
}

// setUncalled sets the facts of a communicator without a recorded call.
func (c *knownCommunicator) setUncalled(f *communicator.Found) {
	c.layout, c.id, c.rank, c.size, c.hasCounts = f.Layout, int64(f.Hash), f.Rank, f.Size, f.HasCounts
	c.fact.Version = f.Layout.Version
	switch {
	case f.Size == 1:
		c.fact.Missing = missingOneRank
	case f.HasCounts:
		c.fact.Numbering, c.fact.Before = format.NumberingCounter, int64(f.Launched())
	default:
		c.fact.Missing = missingCounts
	}
}

// newCensus returns the counts of a communicator at a time, Unix ns.
func newCensus(state *communicator.State, atNs int64) *format.CommunicatorCensus {
	return &format.CommunicatorCensus{AtNs: atNs, SinceNs: atNs, Counts: state.CountsByFunction()}
}

// setCensus sets the last census. Equal counts keep the time of the first census with these counts.
func (c *knownCommunicator) setCensus(census *format.CommunicatorCensus, isMoving bool) {
	if last := c.fact.Census; last != nil && !isMoving && maps.Equal(last.Counts, census.Counts) {
		census.SinceNs = last.SinceNs
	}
	c.fact.Census = census
}

//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/model/census"
	"github.com/gpurec/gpurec/record/communicator"
	"github.com/gpurec/gpurec/record/hoststack"
	"github.com/gpurec/gpurec/record/process"
)

// firstCensusInterval is the time between the two readings of the first snapshot. Later snapshots compare
// with the snapshot before.
const firstCensusInterval = 250 * time.Millisecond

// communicatorReader reads the communicators of processes, and notes since when their counts have not changed.
type communicatorReader struct {
	timeout  time.Duration // for each process
	standing map[communicatorKey]standing
	// failed are the processes that are not read again: a read may still wait.
	failed map[int]error
}

// communicatorKey identifies a communicator of a process.
type communicatorKey struct {
	pid     int
	address uint64
}

// standing is a state that was read at some time, and again in each reading since.
type standing struct {
	state communicator.State
	since time.Time
}

// processCommunicators has the communicators of a process.
type processCommunicators struct {
	*communicator.Census
	pid     int
	takenAt time.Time
	since   []time.Time // of each communicator: the first reading with its state
	err     error       // why Census is nil
}

func newCommunicatorReader(timeout time.Duration) *communicatorReader {
	return &communicatorReader{
		timeout: timeout, standing: make(map[communicatorKey]standing), failed: make(map[int]error),
	}
}

// read returns the communicators of each process with a snapshot. The first time, it reads them twice.
func (r *communicatorReader) read(ctx context.Context, snapshots []*hoststack.ProcessSnapshot) []processCommunicators {
	isFirst := len(r.standing) == 0
	list := r.readOnce(ctx, snapshots)
	if !isFirst || len(r.standing) == 0 || !waitUntil(ctx, time.Now().Add(firstCensusInterval)) {
		return list
	}
	return r.readOnce(ctx, snapshots)
}

func (r *communicatorReader) readOnce(
	ctx context.Context,
	snapshots []*hoststack.ProcessSnapshot,
) (list []processCommunicators) {
	for _, snapshot := range snapshots {
		p := r.readProcess(ctx, snapshot.Pid)
		if !errors.Is(p.err, communicator.ErrNoLibrary) {
			list = append(list, p)
		}
	}
	return list
}

func (r *communicatorReader) readProcess(ctx context.Context, pid int) processCommunicators {
	p := processCommunicators{pid: pid, takenAt: time.Now(), err: r.failed[pid]}
	if p.err != nil {
		return p
	}
	if p.Census, p.err = r.findAll(ctx, pid); p.err != nil {
		if errors.Is(p.err, communicator.ErrTimeout) {
			r.failed[pid] = p.err
		}
		return p
	}
	for i := range p.Communicators {
		f := &p.Communicators[i]
		key := communicatorKey{pid, f.Address}
		known, ok := r.standing[key]
		if !ok || known.state != f.State || f.IsMoving {
			known = standing{f.State, p.takenAt}
			r.standing[key] = known
		}
		p.since = append(p.since, known.since)
	}
	return p
}

func (r *communicatorReader) findAll(ctx context.Context, pid int) (*communicator.Census, error) {
	p, err := process.Open(pid)
	if err != nil {
		return nil, communicator.ErrEnded
	}
	defer p.Close()
	maps, err := p.Maps()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	return communicator.FindAll(ctx, pid, maps)
}

// communicatorSides has the ranks of a communicator among the processes.
type communicatorSides struct {
	hash  uint64
	size  int32
	sides []census.Side
	pids  []int // of the sides
	// unchanged is the shortest time for which the counts of a rank have not changed.
	unchanged time.Duration
	// isComparable is false if a rank has no counts, is moving, or is there twice.
	isComparable bool
}

// joinCommunicators returns the communicators of several ranks among the processes, ordered by hash.
func joinCommunicators(list []processCommunicators) (joined []*communicatorSides) {
	type key struct {
		hash uint64
		size int32
	}
	known := make(map[key]*communicatorSides)
	for i := range list {
		p := &list[i]
		if p.err != nil {
			continue
		}
		for j := range p.Communicators {
			f := &p.Communicators[j]
			k := key{f.Hash, f.Size}
			c := known[k]
			if c == nil {
				c = &communicatorSides{
					hash:         f.Hash,
					size:         f.Size,
					isComparable: true,
					unchanged:    p.takenAt.Sub(p.since[j]),
				}
				known[k] = c
				joined = append(joined, c)
			}
			c.add(f, p.pid, p.takenAt.Sub(p.since[j]))
		}
	}
	joined = slices.DeleteFunc(joined, func(c *communicatorSides) bool { return c.size < 2 || len(c.sides) < 2 })
	slices.SortFunc(joined, func(a, b *communicatorSides) int {
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.size, b.size))
	})
	return joined
}

// add adds the communicator of a rank.
func (c *communicatorSides) add(f *communicator.Found, pid int, unchanged time.Duration) {
	isTwice := slices.ContainsFunc(c.sides, func(s census.Side) bool { return s.Rank == int(f.Rank) })
	c.isComparable = c.isComparable && f.HasCounts && !f.IsMoving && !isTwice && unchanged > 0
	c.unchanged = min(c.unchanged, unchanged)
	c.pids = append(c.pids, pid)
	c.sides = append(c.sides, census.Side{Rank: int(f.Rank), Counts: f.CountsByFunction()})
}

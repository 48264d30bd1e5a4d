package clocks

import (
	"cmp"
	"math"
	"runtime"
	"sync"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Read bounds the differences between the clocks of the hosts of a job at its end. It reads the last row groups of all
// recordings, of as many at once as there are processors. For a job of one host it reads nothing. It returns errors of
// reading the recordings.
func Read(j *job.Job) (*Clocks, error) {
	ntp, collectives := NewBounds(len(j.Hosts)), NewBounds(len(j.Hosts))
	if len(j.Hosts) < 2 {
		return newClocks(j.Hosts, ntp, collectives), nil
	}
	endNs := int64(math.MinInt64)
	for i := range j.Recordings {
		endNs = max(endNs, j.Recordings[i].EndNs-j.Recordings[i].ShiftNs)
	}
	table := make(evidenceTable)
	var mu sync.Mutex
	err := eachRecording(j, func(i int, t *timeline.Timeline) error {
		entries, err := readEntries(j, i, t)
		if err != nil {
			return err
		}
		r := &j.Recordings[i]
		mu.Lock()
		defer mu.Unlock()
		addNTP(ntp, r.Host, &t.Rec.Meta, r.ShiftNs, endNs+r.ShiftNs)
		for k := range entries {
			table.add(int32(r.Host), &entries[k])
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	table.addTo(collectives, endNs)
	return newClocks(j.Hosts, ntp, collectives), nil
}

// eachRecording calls do with the end of each recording, for as many at once as there are processors.
func eachRecording(j *job.Job, do func(i int, t *timeline.Timeline) error) error {
	indexes := make(chan int)
	errs := make(chan error, len(j.Paths))
	var wg sync.WaitGroup
	for range min(len(j.Paths), runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range indexes {
				errs <- openAndDo(j, i, do)
			}
		})
	}
	for i := range j.Paths {
		indexes <- i
	}
	close(indexes)
	wg.Wait()
	close(errs)
	var first error
	for err := range errs {
		first = cmp.Or(first, err)
	}
	return first
}

func openAndDo(j *job.Job, i int, do func(i int, t *timeline.Timeline) error) error {
	t, err := j.OpenEnd(i)
	if err != nil {
		return err
	}
	defer t.Rec.Close()
	return do(i, t)
}

// readEntries returns the last operations of a recording whose numbers are those of all ranks, with their times on the
// clock of the host.
//
// The end of an operation is the return of a wait of the host that began after the operation was given to the
// stream, and that waits for this stream or for the whole device. It counts only if the process later calls another
// operation of the communicator with success: NCCL ends the operations of an aborted communicator early. Operations of
// groups count as given to the stream when ncclGroupEnd returns. Captured operations do not run, and those of
// communicators that do not block run later, so both are left out.
func readEntries(j *job.Job, i int, t *timeline.Timeline) ([]entry, error) {
	last, err := collective.ReadLast(t, query.Options{})
	if err != nil {
		return nil, err
	}
	w, err := readWaits(t)
	if err != nil {
		return nil, err
	}
	isMember := make(map[int32]bool)
	for _, m := range j.MembersOf(i) {
		isMember[m.Pid] = true
	}
	lastStart := make([]int64, len(last.Communicators))
	for k := range last.Operations {
		// Without groups, operations may have no result either.
		if o := &last.Operations[k]; o.Result == 0 && !o.IsOpen && o.Group != format.GroupUnknown {
			lastStart[o.Communicator] = max(lastStart[o.Communicator], o.StartNs)
		}
	}
	var entries []entry
	for k := range last.Operations {
		o := &last.Operations[k]
		c := &last.Communicators[o.Communicator]
		e, ok := newEntry(c, o)
		if !ok || !isMember[c.Pid] {
			continue
		}
		e.startNs = o.StartNs
		if end := w.endOf(c, o); end < lastStart[o.Communicator] {
			e.endNs = end
		}
		e.toHost(j.Recordings[i].ShiftNs, o.Function)
		entries = append(entries, e)
	}
	return entries, nil
}

// newEntry returns the operation of a rank without its times. ok is false if it is no evidence.
func newEntry(c *collective.Communicator, o *collective.Operation) (e entry, ok bool) {
	exact := c.Fact.Numbering == format.NumberingExact
	counted := exact || c.Fact.Numbering == format.NumberingCounter
	if c.ID == 0 || c.Size < 2 || c.Rank < 0 || c.Rank >= c.Size || o.Count <= 0 || o.Sequence <= 0 || o.Result != 0 {
		return e, false
	}
	e = entry{function: o.Function, root: o.Root, count: o.Count, endNs: noEnd}
	e.communicator, e.sender, e.receiver, e.number = c.ID, notPeers, notPeers, o.Sequence
	switch {
	case o.Function == collective.Send && exact:
		e.sender, e.receiver = c.Rank, o.Root
	case o.Function == collective.Recv && exact:
		e.sender, e.receiver = o.Root, c.Rank
	case !o.Function.IsCollective() || !counted:
		return e, false
	}
	e.isRoot = e.sender != notPeers || o.Root == c.Rank
	return e, true
}

// toHost converts the times to the clock of the host. A Send has no end that is known to follow its Recv, and the
// start of a Recv bounds nothing.
func (e *entry) toHost(shiftNs int64, f collective.Function) {
	e.startNs -= shiftNs
	if e.endNs != noEnd {
		e.endNs -= shiftNs
	}
	switch f {
	case collective.Send:
		e.endNs = noEnd
	case collective.Recv:
		e.startNs = noStart
	}
}

package timeline

import (
	"slices"

	"github.com/gpurec/gpurec/format"
)

// Numbers of row groups that OpenEnd scans, the last ones.
const (
	endCallGroups = 3
	endHostGroups = 4
)

// OpenEnd opens a recording for reports about its end. It reads facts and stacks, and scans the last row groups of
// calls and of class host only, so that its time does not grow with the recording. The result has no other row
// groups: it cannot replay memory, and knows no contexts. The recording must stay open while the Timeline is used.
// OpenEnd returns errors of reading the recording.
func OpenEnd(rec *format.Recording) (*Timeline, error) {
	t, err := readFacts(rec)
	if err != nil {
		return nil, err
	}
	readStacks := func() error { return t.readStacks(make(map[format.Frame]int32)) }
	if err := RunParallel(t.scanEnd, readStacks); err != nil { // calls and stacks share no data
		return nil, err
	}
	t.keepOpened()
	return t, nil
}

// scanEnd records the positions of the last row groups with calls, and of class host. Scan.Events counts all calls,
// and Scan.Open those that the recorder counted.
func (t *Timeline) scanEnd() error {
	var events, allocatorEvents int64
	t.Groups = t.Rec.Groups()
	for i, g := range slices.Backward(t.Groups) {
		switch g.Class() {
		case format.ClassMemory:
			events += int64(g.NumRows())
		case format.ClassCall:
			events += int64(g.NumRows())
			if len(t.Calls) < endCallGroups {
				t.Calls = append(t.Calls, t.Scan.addGroup(g, i))
			}
		case format.ClassAllocator:
			allocatorEvents += int64(g.NumRows())
		case format.ClassProgress:
			t.Progress = append(t.Progress, g)
		case format.ClassHost:
			if len(t.Host) < endHostGroups {
				t.Host = append(t.Host, g)
			}
		}
		if err := g.Err(); err != nil {
			return err
		}
	}
	slices.Reverse(t.Calls)
	slices.Reverse(t.Progress)
	slices.Reverse(t.Host)
	t.Scan.Events, t.Scan.AllocatorEvents = events, allocatorEvents
	t.Scan.Open = max(t.Scan.Open, t.Rec.Meta.Totals().Open)
	return nil
}

package threadstate

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// maxThreads bounds the threads that Read keeps.
const maxThreads = 1 << 18

// Read returns the snapshots of a recording up to a time, Unix ns: by pid, in the order of time.
func Read(t *timeline.Timeline, untilNs int64) (map[int32][]Snapshot, error) {
	r := reader{stacks: &t.Stacks, frames: make(map[int32][]format.Frame), snapshots: make(map[snapshotKey]*Snapshot)}
	for _, g := range t.Host {
		if !slices.Contains(g.Kinds(), format.KindThreadState) {
			continue
		}
		r.readGroup(g, untilNs)
		if err := g.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	byPid := make(map[int32][]Snapshot)
	for key, snapshot := range r.snapshots {
		slices.SortStableFunc(snapshot.Threads, func(a, b Thread) int { return cmp.Compare(a.Tid, b.Tid) })
		snapshot.linkBackward()
		byPid[key.pid] = append(byPid[key.pid], *snapshot)
	}
	for _, snapshots := range byPid {
		slices.SortFunc(snapshots, func(a, b Snapshot) int { return cmp.Compare(a.AtNs, b.AtNs) })
	}
	return byPid, nil
}

// snapshotKey identifies a snapshot: its rows have one time.
type snapshotKey struct {
	pid  int32
	atNs int64
}

// reader collects the rows of snapshots.
type reader struct {
	stacks    *stack.StackTable
	frames    map[int32][]format.Frame // by number of the stack
	snapshots map[snapshotKey]*Snapshot
	threads   int
}

// readGroup reads the thread states of a row group.
func (r *reader) readGroup(g *format.Group, untilNs int64) {
	kinds, start, off := g.Strings("kind"), g.Int64("start_ns", nil), g.Int64("dur_ns", nil)
	pids, tids, stacks := g.Int32("pid", nil), g.Int32("tid", nil), g.Int32("stack_id", nil)
	names, messages := g.Strings("name"), g.Strings("message")
	for i, at := range start {
		if kinds.At(i) != format.KindThreadState || at > untilNs || r.threads == maxThreads {
			continue
		}
		r.threads++
		th := Thread{
			Pid:   pids[i],
			Tid:   tids[i],
			State: names.At(i),
			OffNs: min(max(0, off[i]), max(0, at)),
			Stack: stacks[i],
		}
		// A message that is not as expected leaves the fact empty.
		_ = json.Unmarshal([]byte(messages.At(i)), &th.Wait)
		th.Name, th.Frames = th.Wait.Thread, r.framesOf(stacks[i])
		key := snapshotKey{th.Pid, at}
		snapshot := r.snapshots[key]
		if snapshot == nil {
			snapshot = &Snapshot{Pid: th.Pid, AtNs: at, When: th.Wait.When}
			r.snapshots[key] = snapshot
		}
		snapshot.Threads = append(snapshot.Threads, th)
	}
}

// framesOf returns the frames of a stack.
func (r *reader) framesOf(id int32) []format.Frame {
	if frames, ok := r.frames[id]; ok {
		return frames
	}
	frames := r.stacks.FramesOf(id)
	r.frames[id] = frames
	return frames
}

// SinceNs returns the minimum time, ns, that a thread of the last snapshot has been in its current state. The
// time starts when the thread last ran, or at the earliest of the preceding snapshots with the same stack.
func SinceNs(snapshots []Snapshot, t *Thread, atNs int64) int64 {
	if len(snapshots) == 0 {
		return 0
	}
	last := &snapshots[len(snapshots)-1]
	since, key := last.AtNs-t.OffNs, t.Key()
	for i := len(snapshots) - 2; i >= 0; i-- {
		k := slices.IndexFunc(snapshots[i].Threads, func(o Thread) bool { return o.Tid == t.Tid && o.Key() == key })
		if k < 0 {
			break
		}
		since = min(since, snapshots[i].AtNs-snapshots[i].Threads[k].OffNs)
	}
	return max(0, atNs-since)
}

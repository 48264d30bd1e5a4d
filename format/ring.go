package format

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Limits bound what a recording takes on disk. The zero value bounds nothing.
type Limits struct {
	// MaxBytes is what segments and finished file together never exceed, 0: no bound. Both
	// are there while the file is made, so it comes to somewhat less than half.
	MaxBytes int64
	// Ring makes room by dropping the oldest events: those of more than KeepNs ago (0: of
	// any age), and as many as MaxBytes asks for. Without it, Full says when MaxBytes is
	// reached.
	Ring   bool
	KeepNs int64
}

// MinMaxBytes is the least that Limits.MaxBytes may be: a batch of rows must be small
// against it.
const MinMaxBytes = 16 << 20

const (
	// turnsPerBudget is in how many parts the room for segments is filled and dropped.
	turnsPerBudget = 8
	// segmentOverhead is what a segment takes beside its rows: footer and metadata.
	segmentOverhead = 16 << 10
	// maxKeptSegments is how many segments of facts or of stacks a ring lets gather before
	// it makes one of them.
	maxKeptSegments = 32
)

// firstRowBytes is what a row is thought to take until a segment tells: more than any does.
var firstRowBytes = [numClasses]float64{
	ClassFact:      512,
	ClassStack:     2048,
	ClassSample:    64,
	ClassMemory:    100,
	ClassCall:      100,
	ClassAllocator: 100,
}

// isEvent reports whether a ring drops rows of the class when they are old. Facts and
// stacks stay: younger rows refer to them.
func (c Class) isEvent() bool { return c >= ClassSample }

// turn is what one Rotate finished: the unit in which a ring drops events.
type turn struct {
	number int
	events []string // files
	bytes  int64    // of those
	rows   [numClasses]int64
	lastNs int64 // when the last of the events ended
	callNs int64 // when the last of the calls did, which are written later than samples
}

// kept is a finished segment of facts or stacks.
type kept struct {
	file        *laterFile
	path        string
	bytes       int64
	first, last int // numbers of the segments whose rows it holds
}

// DroppedRotation is what a ring drops at once: all events that one Rotate had finished.
type DroppedRotation struct {
	// Number is what Turn returned when these rows were written.
	Number int
	// LastNs is when the last dropped call or event of an allocator ended, if there were none the
	// last sample: of those that ended later, none is dropped with it.
	LastNs int64
	// Rows are the dropped rows by the name of their class.
	Rows map[string]int64
}

// Turn numbers what the next Rotate will finish.
func (w *Writer) Rotation() int { return w.turn }

// budget is what segments may take: as much again is needed to merge them, and a part of
// it is for what comes after the last look.
func (w *Writer) budget() int64 {
	return w.opt.Limits.MaxBytes / 2 * (turnsPerBudget - 1) / turnsPerBudget
}

// openBytes estimates what the open segments will come to.
func (w *Writer) openBytes() int64 {
	var sum int64
	for c, s := range w.open {
		if s != nil {
			sum += segmentOverhead + max(s.file.bytes, int64(float64(s.count)*w.rowBytes[c]))
		}
	}
	return sum
}

// ShouldRotate reports whether the open segments are as large as they should get within
// Limits.MaxBytes.
func (w *Writer) ShouldRotate() bool {
	return w.opt.Limits.MaxBytes > 0 && w.openBytes() > w.budget()/turnsPerBudget
}

// Full reports whether a recording that is no ring, or a ring of nothing but facts, has
// reached Limits.MaxBytes: it should be finished.
func (w *Writer) Full() bool {
	if w.opt.Limits.MaxBytes == 0 || w.opt.Limits.Ring && len(w.turns) > 0 {
		return false
	}
	return w.written+w.openBytes() > w.budget()*(turnsPerBudget-1)/turnsPerBudget
}

// Drop takes the oldest events out of a ring, as far as its limits ask for at the time
// nowNs, and returns what goes. The files go at the end of the next Rotate or Finish, so
// that metadata never tells of more than there is.
func (w *Writer) Drop(nowNs int64) []DroppedRotation {
	l := w.opt.Limits
	if !l.Ring {
		return nil
	}
	var dropped []DroppedRotation
	for len(w.turns) > 0 {
		oldest := &w.turns[0]
		// What came after the last one is not on disk yet: without it a crash would leave nothing.
		tooOld := l.KeepNs > 0 && len(w.turns) > 1 && oldest.lastNs < nowNs-l.KeepNs
		tooMuch := l.MaxBytes > 0 && w.written-w.doomedBytes+w.openBytes() > w.budget()
		if !tooOld && !tooMuch {
			break
		}
		rows := make(map[string]int64)
		for c, n := range oldest.rows {
			if n > 0 {
				rows[Class(c).String()] = n
			}
		}
		dropped = append(dropped, DroppedRotation{oldest.number, cmp.Or(oldest.callNs, oldest.lastNs), rows})
		w.doomed = append(w.doomed, oldest.events...)
		w.doomedBytes += oldest.bytes
		w.turns = w.turns[1:]
	}
	return dropped
}

// removeDoomed has deleted what Drop took out, once one of these files tells so on disk, or none.
func (w *Writer) removeDoomed(tell []*laterFile) {
	doomed := w.doomed
	w.disk.later(0, func() {
		if len(tell) > 0 && !slices.ContainsFunc(tell, (*laterFile).isDone) {
			return
		}
		for _, path := range doomed {
			w.disk.remove(path)
		}
	})
	w.written -= w.doomedBytes
	w.doomed, w.doomedBytes = nil, 0
}

// account takes a finished segment into the books.
func (w *Writer) account(s *segment, t *turn) {
	c, size := s.class, s.file.bytes
	w.written += size
	if s.count > 1000 {
		w.rowBytes[c] = float64(size) / float64(s.count) * 1.25
	}
	if !c.isEvent() {
		w.kept[c] = append(w.kept[c], kept{s.file, s.path, size, s.number, s.number})
		return
	}
	t.events = append(t.events, s.path)
	t.bytes += size
	t.rows[c] += s.count
	t.lastNs = max(t.lastNs, s.lastNs)
	if c != ClassSample {
		t.callNs = max(t.callNs, s.lastNs)
	}
}

// unaccount takes a segment out of the books that did not come to disk.
func (w *Writer) unaccount(s *segment) {
	w.written -= s.file.bytes
	w.kept[s.class] = slices.DeleteFunc(w.kept[s.class], func(k kept) bool { return k.file == s.file })
	for i := range w.turns {
		if t := &w.turns[i]; t.number == s.turn {
			t.events = slices.DeleteFunc(t.events, func(path string) bool { return path == s.path })
			t.bytes -= s.file.bytes
			t.rows[s.class] = 0
		}
	}
}

// ShouldCompact reports whether so many segments of facts or stacks have gathered that
// Compact is worth its while.
func (w *Writer) ShouldCompact() bool {
	return w.opt.Limits.Ring && max(len(w.onDisk(ClassFact)), len(w.onDisk(ClassStack))) >= maxKeptSegments
}

// onDisk returns the oldest segments of facts or of stacks, up to the first that is on its way.
func (w *Writer) onDisk(c Class) []kept {
	all := w.kept[c]
	if i := slices.IndexFunc(all, func(k kept) bool { return !k.file.isDone() }); i >= 0 {
		return all[:i]
	}
	return all
}

// Compact makes one segment each of all segments of facts and of stacks that are on disk and
// leaves out the rows that forget is true for. meta is stored in them. It does not wait for
// the disk either.
func (w *Writer) Compact(meta Meta, forget func(*Row) bool) error {
	meta.Complete = CompleteNo
	for _, c := range []Class{ClassFact, ClassStack} {
		parts := w.onDisk(c)
		if len(parts) < 2 {
			continue
		}
		one, err := w.compactClass(c, parts, &meta, forget)
		if err != nil {
			return fmt.Errorf("join segments of class %s: %w", c, err)
		}
		var replaced []string
		for _, k := range parts {
			replaced = append(replaced, k.path)
			w.written -= k.bytes
		}
		w.disk.later(0, func() {
			for _, path := range replaced {
				if one.file.isDone() && path != one.path {
					w.disk.remove(path)
				}
			}
		})
		w.written += one.bytes
		w.kept[c] = slices.Replace(w.kept[c], 0, len(parts), one)
	}
	return nil
}

// compactClass writes the joined segment. Its name tells which ones it replaces: until
// those are deleted, readers pass them over.
func (w *Writer) compactClass(c Class, parts []kept, meta *Meta, forget func(*Row) bool) (one kept, err error) {
	one.first, one.last = parts[0].first, parts[len(parts)-1].last
	name := fmt.Sprintf("%06d-%06d-%s.parquet", one.first, one.last, c)
	one.path, one.file = filepath.Join(w.dir, name), w.disk.create(name)
	out := parquet.NewGenericWriter[Row](one.file, writerOptions()...)
	for _, k := range parts {
		if err := w.copyRows(out, k.path, c, forget); err != nil {
			one.file.drop()
			return one, err
		}
	}
	if err := closeParquet(out, meta); err != nil {
		one.file.drop()
		return one, err
	}
	one.file.finish()
	one.bytes = one.file.bytes
	return one, nil
}

// copyRows copies the rows of a segment but for those that forget is true for.
func (w *Writer) copyRows(out *parquet.GenericWriter[Row], path string, c Class, forget func(*Row) bool) error {
	rec := &Recording{Path: path}
	if err := rec.add(w.root.Open, filepath.Base(path), path); err != nil {
		rec.Close()
		return err
	}
	err := rec.Rows(func(r *Row) error {
		if forget(r) {
			return nil
		}
		_, err := out.Write([]Row{*r})
		return err
	}, c)
	return errors.Join(err, rec.Close())
}

// segmentName is what the name of a segment's file tells.
type segmentName struct {
	path        string
	class       Class
	first, last int
}

// parseSegmentName reads a name that a Writer makes: 000001-call.parquet, or, of joined
// segments, 000001-000032-fact.parquet.
func parseSegmentName(name string) (s segmentName, ok bool) {
	for c := range numClasses {
		end := "-" + c.String() + ".parquet"
		if len(name) <= len(end) || name[len(name)-len(end):] != end {
			continue
		}
		numbers := name[:len(name)-len(end)]
		s.class = c
		if n, err := fmt.Sscanf(numbers, "%d-%d", &s.first, &s.last); err == nil && n == 2 {
			return s, numbers == fmt.Sprintf("%06d-%06d", s.first, s.last)
		}
		if n, err := fmt.Sscanf(numbers, "%d", &s.first); err == nil && n == 1 {
			s.last = s.first
			return s, numbers == fmt.Sprintf("%06d", s.first)
		}
	}
	return s, false
}

// withoutReplaced sorts segments as they were made and leaves out those whose rows a joined one
// holds: the recorder was killed before it had deleted them.
func withoutReplaced(all []segmentName) []segmentName {
	slices.SortFunc(all, func(a, b segmentName) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last))
	})
	var ends [numClasses]int // the number after the last segment that is there
	return slices.DeleteFunc(all, func(s segmentName) bool {
		if s.last < ends[s.class] {
			return true
		}
		ends[s.class] = s.last + 1
		return false
	})
}

package format

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Limits bound the size of a recording on disk. The zero value sets no limit.
type Limits struct {
	// MaxBytes is the largest size of segments and finished file together, in bytes. 0 means no
	// limit. Both exist while Finish merges the segments, so a finished file is smaller than half
	// of MaxBytes.
	MaxBytes int64
	// Ring drops the oldest events to stay within the limits: events older than KeepNs (0: no age
	// limit), and more if MaxBytes requires it. Without Ring, Writer.Full reports that the
	// recording has reached MaxBytes.
	Ring   bool
	KeepNs int64
}

// MinMaxBytes is the smallest allowed Limits.MaxBytes above 0: a batch of rows must be small
// compared with it.
const MinMaxBytes = 16 << 20

const (
	// rotationsPerSizeLimit is the number of rotations that fill the space for segments.
	rotationsPerSizeLimit = 8
	// segmentFooterBytes is the size of a segment's footer and metadata in bytes.
	segmentFooterBytes = 16 << 10
	// segmentsBeforeCompaction is the number of fact or stack segments at which a ring compacts
	// them into one segment.
	segmentsBeforeCompaction = 32
)

// assumedRowBytes is the assumed size of a row in bytes, until a finished segment gives a measured
// value. It is above the size of real rows.
var assumedRowBytes = [numRowClasses]float64{
	ClassFact:       512,
	ClassStack:      2048,
	ClassSample:     64,
	ClassMemory:     100,
	ClassCall:       100,
	ClassAllocator:  100,
	ClassProgress:   10,
	ClassHost:       60,
	ClassCollective: 100,
	ClassArguments:  200,
	ClassBlock:      60,
}

// holdsEvents reports whether a ring drops old rows of the class. A ring keeps facts and stacks,
// because newer rows refer to them.
func (c Class) holdsEvents() bool { return c >= ClassSample }

// segmentRotation describes the events that one call of Rotate finished. A ring drops events by
// whole rotations.
type segmentRotation struct {
	number int
	events []string // paths of the segment files
	bytes  int64    // size of the segment files
	rows   [numRowClasses]int64
	lastNs int64 // time of the end of the last event, Unix ns
	callNs int64 // the same without samples and host, which are not written in the order of calls
}

// describe returns the rows of the rotation.
func (r *segmentRotation) describe() DroppedRotation {
	rows := make(map[string]int64)
	for c, n := range r.rows {
		if n > 0 {
			rows[Class(c).String()] = n
		}
	}
	return DroppedRotation{r.number, cmp.Or(r.callNs, r.lastNs), rows}
}

// retainedSegment is a finished segment of facts or stacks.
type retainedSegment struct {
	file        *asyncFile
	path        string
	bytes       int64
	first, last int // numbers of the oldest and newest segment that it replaces
}

// DroppedRotation describes the rows that a ring drops together: all events that one call of Rotate
// finished.
type DroppedRotation struct {
	// Number is the result of Writer.Rotation when the rows were written.
	Number int
	// LastNs is the end of the last dropped call, allocator event or progress row, Unix ns. If there
	// was none, LastNs is the time of the last sample. Rows of this rotation never end later than LastNs.
	LastNs int64
	// Rows counts the dropped rows by the name of their class.
	Rows map[string]int64
}

// Rotation returns the number of the next Rotate. Rows of Write belong to this rotation.
func (w *Writer) Rotation() int { return w.rotation }

// segmentBudgetBytes returns the bytes that segments may use. Merging needs as much space again.
// One part in rotationsPerSizeLimit is reserved for data that arrives between two checks of the
// limits.
func (w *Writer) segmentBudgetBytes() int64 {
	return w.opt.Limits.MaxBytes / 2 * (rotationsPerSizeLimit - 1) / rotationsPerSizeLimit
}

// estimateOpenBytes estimates the final size of the open segments in bytes.
func (w *Writer) estimateOpenBytes() int64 {
	var sum int64
	for c, s := range w.open {
		if s != nil {
			sum += segmentFooterBytes + max(s.file.bytes, int64(float64(s.count)*w.rowBytes[c]))
		}
	}
	return sum
}

// ShouldRotate reports whether the open segments have reached the largest size that Limits.MaxBytes
// allows one rotation. The caller should call Rotate then.
func (w *Writer) ShouldRotate() bool {
	return w.opt.Limits.MaxBytes > 0 && w.estimateOpenBytes() > w.segmentBudgetBytes()/rotationsPerSizeLimit
}

// Full reports whether the recording has reached Limits.MaxBytes and nothing can be dropped: it is
// not a ring, or the ring holds only facts and stacks. The caller should call Finish then.
func (w *Writer) Full() bool {
	if w.opt.Limits.MaxBytes == 0 || w.opt.Limits.Ring && len(w.rotations) > 0 {
		return false
	}
	return w.written+w.estimateOpenBytes() > w.segmentBudgetBytes()*(rotationsPerSizeLimit-1)/rotationsPerSizeLimit
}

// DropOldRotations removes the oldest events of a ring until it is within its limits at the time nowNs (Unix
// ns), and returns the dropped rotations. The next Rotate or Finish deletes their files. Until
// then, metadata on disk still counts them.
func (w *Writer) DropOldRotations(nowNs int64) []DroppedRotation {
	l := w.opt.Limits
	if !l.Ring {
		return nil
	}
	var dropped []DroppedRotation
	for len(w.rotations) > 0 {
		oldest := &w.rotations[0]
		// Keep the newest rotation: later events are not on disk yet, and a crash would leave no
		// events.
		tooOld := l.KeepNs > 0 && len(w.rotations) > 1 && oldest.lastNs < nowNs-l.KeepNs
		tooMuch := l.MaxBytes > 0 && w.written-w.pendingDeleteBytes+w.estimateOpenBytes() > w.segmentBudgetBytes()
		if !tooOld && !tooMuch {
			break
		}
		dropped = append(dropped, oldest.describe())
		w.pendingDeletes = append(w.pendingDeletes, oldest.events...)
		w.pendingDeleteBytes += oldest.bytes
		w.rotations = w.rotations[1:]
	}
	return dropped
}

// deleteDroppedFiles deletes the files of dropped rotations as soon as one file of updated is on
// disk: its metadata no longer counts the dropped rows. An empty list means that no file needs to
// be waited for.
func (w *Writer) deleteDroppedFiles(updated []*asyncFile) {
	paths := w.pendingDeletes
	w.disk.enqueue(0, func() {
		if len(updated) > 0 && !slices.ContainsFunc(updated, (*asyncFile).isOnDisk) {
			return
		}
		for _, path := range paths {
			w.disk.removeFile(path)
		}
	})
	w.written -= w.pendingDeleteBytes
	w.pendingDeletes, w.pendingDeleteBytes = nil, 0
}

// countSegment adds a finished segment to the sizes and row counts of the Writer and of its
// rotation.
func (w *Writer) countSegment(s *segmentFile, r *segmentRotation) {
	c, size := s.class, s.file.bytes
	w.written += size
	if s.count > 1000 {
		w.rowBytes[c] = float64(size) / float64(s.count) * 1.25
	}
	if !c.holdsEvents() {
		w.retained[c] = append(w.retained[c], retainedSegment{s.file, s.path, size, s.number, s.number})
		return
	}
	r.events = append(r.events, s.path)
	r.bytes += size
	r.rows[c] += s.count
	r.lastNs = max(r.lastNs, s.lastNs)
	if c != ClassSample && c != ClassHost {
		r.callNs = max(r.callNs, s.lastNs)
	}
}

// uncountSegment subtracts a segment that could not be written to disk.
func (w *Writer) uncountSegment(s *segmentFile) {
	w.written -= s.file.bytes
	isLost := func(k retainedSegment) bool { return k.file == s.file }
	w.retained[s.class] = slices.DeleteFunc(w.retained[s.class], isLost)
	for i := range w.rotations {
		if r := &w.rotations[i]; r.number == s.rotation {
			r.events = slices.DeleteFunc(r.events, func(path string) bool { return path == s.path })
			r.bytes -= s.file.bytes
			r.rows[s.class] = 0
		}
	}
}

// ShouldCompact reports whether a ring, or a recording that tracks rotations, has so many segments of facts or stacks
// that the caller should call Compact.
func (w *Writer) ShouldCompact() bool {
	if !w.opt.Limits.Ring && !w.opt.TracksRotations {
		return false
	}
	return max(len(w.segmentsToJoin(ClassFact)), len(w.segmentsToJoin(ClassStack))) >= segmentsBeforeCompaction
}

// segmentsToJoin returns the segments of facts or stacks on disk that Compact joins. A ring joins all of them, because
// some of their rows are obsolete. Other recordings join those that are not joined yet, so that no row is written more
// than twice.
func (w *Writer) segmentsToJoin(c Class) []retainedSegment {
	all := w.retainedSegmentsOnDisk(c)
	if w.opt.Limits.Ring {
		return all
	}
	first := slices.IndexFunc(all, func(k retainedSegment) bool { return k.first == k.last })
	if first < 0 {
		return nil
	}
	return all[first:]
}

// retainedSegmentsOnDisk returns the oldest segments of facts or stacks, up to the first segment
// that is not on disk yet.
func (w *Writer) retainedSegmentsOnDisk(c Class) []retainedSegment {
	all := w.retained[c]
	if i := slices.IndexFunc(all, func(k retainedSegment) bool { return !k.file.isOnDisk() }); i >= 0 {
		return all[:i]
	}
	return all
}

// Compact joins fact segments on disk into one segment, and stack segments into another. A ring joins all of them, other
// recordings those that are not joined yet. It leaves out rows for which isObsolete returns true. It stores meta in the
// new segments. It does not wait for the disk.
func (w *Writer) Compact(meta Meta, isObsolete func(*Row) bool) error {
	meta.Complete = CompleteNo
	for _, c := range []Class{ClassFact, ClassStack} {
		parts := w.segmentsToJoin(c)
		if len(parts) < 2 {
			continue
		}
		joined, err := w.compactSegmentsOfClass(c, parts, &meta, isObsolete)
		if err != nil {
			return fmt.Errorf("join segments of class %s: %w", c, err)
		}
		var replaced []string
		for _, k := range parts {
			replaced = append(replaced, k.path)
			w.written -= k.bytes
		}
		w.disk.enqueue(0, func() {
			for _, path := range replaced {
				if joined.file.isOnDisk() && path != joined.path {
					w.disk.removeFile(path)
				}
			}
		})
		w.written += joined.bytes
		from := slices.IndexFunc(w.retained[c], func(k retainedSegment) bool { return k.path == parts[0].path })
		w.retained[c] = slices.Replace(w.retained[c], from, from+len(parts), joined)
	}
	return nil
}

// compactSegmentsOfClass writes the joined segment. Its name has the numbers of the first and the
// last segment that it replaces. Readers ignore replaced segments that are not deleted yet.
func (w *Writer) compactSegmentsOfClass(
	c Class,
	parts []retainedSegment,
	meta *Meta,
	isObsolete func(*Row) bool,
) (joined retainedSegment, err error) {
	joined.first, joined.last = parts[0].first, parts[len(parts)-1].last
	name := fmt.Sprintf("%06d-%06d-%s.parquet", joined.first, joined.last, c)
	joined.path, joined.file = filepath.Join(w.dir, name), w.disk.createFile(name)
	out := parquet.NewGenericWriter[Row](joined.file, parquetWriterOptions()...)
	for _, k := range parts {
		if err := w.copyCurrentRows(out, k.path, c, isObsolete); err != nil {
			joined.file.queueRemoval()
			return joined, err
		}
	}
	if err := closeParquetWriter(out, meta); err != nil {
		joined.file.queueRemoval()
		return joined, err
	}
	joined.file.queueFinish()
	joined.bytes = joined.file.bytes
	return joined, nil
}

// copyCurrentRows copies the rows of a segment except those for which isObsolete returns true.
func (w *Writer) copyCurrentRows(
	out *parquet.GenericWriter[Row],
	path string,
	c Class,
	isObsolete func(*Row) bool,
) error {
	rec := &Recording{Path: path}
	if err := rec.addFile(w.root.Open, filepath.Base(path), path); err != nil {
		rec.Close()
		return err
	}
	err := rec.Rows(func(r *Row) error {
		if isObsolete(r) {
			return nil
		}
		_, err := out.Write([]Row{*r})
		return err
	}, c)
	return errors.Join(err, rec.Close())
}

// segmentName is the parsed file name of a segment.
type segmentName struct {
	path        string
	class       Class
	first, last int
}

// parseSegmentName parses the file name of a finished segment: 000001-call.parquet, or
// 000001-000032-fact.parquet for joined segments.
func parseSegmentName(name string) (s segmentName, ok bool) {
	for c := range numRowClasses {
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

// omitReplacedSegments sorts segments by number and leaves out those that a joined segment
// replaces. Replaced segments still exist if the recorder was killed before it deleted them.
func omitReplacedSegments(all []segmentName) []segmentName {
	slices.SortFunc(all, func(a, b segmentName) int {
		return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(b.last, a.last))
	})
	var ends [numRowClasses]int // 1 + the number of the last segment of each class so far
	return slices.DeleteFunc(all, func(s segmentName) bool {
		if s.last < ends[s.class] {
			return true
		}
		ends[s.class] = s.last + 1
		return false
	})
}

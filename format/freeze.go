package format

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// Suffixes of a capture's name in the folder of captures. The name says the state of the capture, so
// that another process can continue it.
const (
	// PendingSuffix is for a folder that still receives segments, or whose recorder was killed.
	PendingSuffix = ".pending"
	// SealingSuffix is for a folder that has all segments. Seal merges it into a file.
	SealingSuffix = ".sealing"
	// CaptureSuffix is for the file of a sealed capture.
	CaptureSuffix = ".parquet"
)

// triggerFile is the name of the file with the trigger, as JSON, in the folder of a capture.
const triggerFile = "trigger.json"

// Frozen is a capture in progress: a folder with hard links to the segments of a ring. Links to all later
// segments are added until Finish. So the capture keeps events that the ring drops. All
// methods belong to the goroutine that owns the Writer.
type Frozen struct {
	w        *Writer
	captures *os.Root
	id       string
	// rotations are the finished events that the ring had when the capture began, oldest first.
	rotations []segmentRotation

	// Only the disk's goroutine uses these.
	root *os.Root
	err  error // first error of a link
}

// Freeze begins a capture of a ring: it creates the folder ID.pending in captures, and links all segments
// into it. It does not wait for the disk. Finish reports all errors. captures must be open until then, and
// in the same file system as the recording.
func (w *Writer) Freeze(captures *os.Root, t *Trigger) *Frozen {
	f := &Frozen{w: w, captures: captures, id: t.ID, rotations: slices.Clone(w.rotations)}
	f.queueBegin(t, nil)
	return f
}

// FreezeSince is Freeze without the events of all rotations that ended before t.FromNs(). It returns what it left out,
// as OmitBefore does.
func (w *Writer) FreezeSince(captures *os.Root, t *Trigger) (*Frozen, []DroppedRotation) {
	f := &Frozen{w: w, captures: captures, id: t.ID, rotations: slices.Clone(w.rotations)}
	omitted, names := f.takeBefore(t.FromNs())
	f.queueBegin(t, names)
	return f, omitted
}

// queueBegin begins the capture after all earlier changes of the folder. It leaves out the segments with these names.
func (f *Frozen) queueBegin(t *Trigger, omitted []string) {
	text, dropped := t.encode(), make(map[string]bool)
	for _, name := range omitted {
		dropped[name] = true
	}
	for _, path := range f.w.pendingDeletes { // the metadata counts their rows as dropped
		dropped[filepath.Base(path)] = true
	}
	f.w.disk.enqueue(0, func() {
		f.w.disk.frozen = append(f.w.disk.frozen, f)
		f.err = f.begin(text, dropped)
	})
}

// begin creates the folder, and links the segments that are on disk.
func (f *Frozen) begin(trigger []byte, dropped map[string]bool) (err error) {
	if err := f.captures.Mkdir(f.id+PendingSuffix, 0o700); err != nil {
		return err
	}
	if f.root, err = f.captures.OpenRoot(f.id + PendingSuffix); err != nil {
		return err
	}
	if o := f.w.opt.Owner; o.Set {
		if err := f.root.Chown(".", o.UID, o.GID); err != nil {
			return err
		}
	}
	if err := f.writeTrigger(trigger); err != nil {
		return err
	}
	entries, err := fs.ReadDir(f.w.disk.root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := parseSegmentName(e.Name()); !ok || dropped[e.Name()] {
			continue
		}
		if err := linkFile(f.w.disk.root, f.root, e.Name()); err != nil {
			return err
		}
	}
	return syncFolder(f.root)
}

// writeTrigger replaces the file with the trigger.
func (f *Frozen) writeTrigger(text []byte) error {
	const unfinished = triggerFile + unfinishedFileSuffix
	file, err := f.root.OpenFile(unfinished, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err := errors.Join(err, f.w.changeFileOwner(file), file.Sync(), file.Close()); err != nil {
		return err
	}
	return f.root.Rename(unfinished, triggerFile)
}

// linkFinished links a segment that has just been finished. It leaves out joined segments: the capture has
// the segments that they replace, and the ring may have left out rows to which the capture refers.
func (f *Frozen) linkFinished(name string) {
	if s, ok := parseSegmentName(name); !ok || s.first != s.last || f.err != nil {
		return
	}
	f.err = linkFile(f.w.disk.root, f.root, name)
}

// OmitBefore leaves out the events of all rotations that ended before fromNs, Unix ns. It returns what it
// left out, so that the caller can subtract it from the counts of Finish.
func (f *Frozen) OmitBefore(fromNs int64) []DroppedRotation {
	omitted, names := f.takeBefore(fromNs)
	f.w.disk.enqueue(0, func() {
		for _, name := range names {
			if err := f.remove(name); err != nil {
				f.err = errors.Join(f.err, err)
			}
		}
	})
	return omitted
}

// takeBefore removes the rotations that ended before fromNs, Unix ns, from the capture, and returns them with the names
// of their segments.
func (f *Frozen) takeBefore(fromNs int64) (omitted []DroppedRotation, names []string) {
	for _, r := range f.rotations {
		if r.lastNs >= fromNs {
			break
		}
		omitted = append(omitted, r.describe())
		for _, path := range r.events {
			names = append(names, filepath.Base(path))
		}
	}
	f.rotations = f.rotations[len(omitted):]
	return omitted, names
}

// remove deletes a link, if it exists.
func (f *Frozen) remove(name string) error {
	if f.root == nil {
		return nil
	}
	if err := f.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// FrozenRows are the rows that a capture has in addition to the segments, by class.
type FrozenRows map[Class][]Row

// Finish ends a capture. It adds rows, which exist only in memory otherwise, and the metadata, whose
// counts must include them. Then it renames the folder to ID.sealing. Rotate must have been called, so
// that all other rows are in finished segments. Finish does not wait for the disk: done is called by another
// goroutine when the folder is complete, or with the first error. After an error, the folder has still
// its first name.
func (f *Frozen) Finish(meta Meta, rows FrozenRows, done func(error)) {
	trigger := meta.Trigger.encode()
	meta.Complete = CompleteNo // Seal changes it
	var files []*asyncFile
	var failed error
	for _, c := range slices.Sorted(maps.Keys(rows)) {
		file, err := f.writeRows(c, rows[c], &meta)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		files = append(files, file)
	}
	f.w.disk.enqueue(0, func() {
		f.w.disk.frozen = slices.DeleteFunc(f.w.disk.frozen, func(other *Frozen) bool { return other == f })
		err := errors.Join(f.err, failed)
		for _, file := range files {
			err = errors.Join(err, file.err)
		}
		if err == nil {
			err = f.complete(trigger)
		}
		if f.root != nil {
			_ = f.root.Close() // all files are closed
		}
		if err != nil {
			err = fmt.Errorf("capture %s: %w", f.id, err)
		}
		done(err)
	})
}

// writeRows writes a segment that only the capture has.
func (f *Frozen) writeRows(c Class, rows []Row, meta *Meta) (*asyncFile, error) {
	f.w.seq++
	file := f.w.disk.createFile(fmt.Sprintf("%06d-%s.parquet", f.w.seq, c))
	file.frozen = f
	for i := range rows {
		rows[i].Class = c.String()
	}
	out := parquet.NewGenericWriter[Row](file, parquetWriterOptions()...)
	_, err := out.Write(rows)
	if err := errors.Join(err, closeParquetWriter(out, meta)); err != nil {
		return nil, err
	}
	file.queueFinish()
	return file, nil
}

// complete brings the folder to disk and gives it its next name.
func (f *Frozen) complete(trigger []byte) error {
	if err := f.writeTrigger(trigger); err != nil {
		return err
	}
	if err := syncFolder(f.root); err != nil {
		return err
	}
	if err := f.captures.Rename(f.id+PendingSuffix, f.id+SealingSuffix); err != nil {
		return err
	}
	return syncFolder(f.captures)
}

// syncFolder brings the names in a folder to disk.
func syncFolder(root *os.Root) error {
	dir, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// FreezeFolder makes a capture of the folder of a ring that no recorder writes any more: it links all segments into
// the folder t.ID.sealing. A capture of this name must not exist.
func FreezeFolder(ring, captures *os.Root, t *Trigger) (err error) {
	name := t.ID + PendingSuffix
	if err := captures.Mkdir(name, 0o700); err != nil {
		return err
	}
	root, err := captures.OpenRoot(name)
	if err != nil {
		return err
	}
	defer root.Close()
	file, err := root.OpenFile(triggerFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(t.encode())
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	entries, err := fs.ReadDir(ring.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, ok := parseSegmentName(e.Name()); !ok {
			continue
		}
		if err := linkFile(ring, root, e.Name()); err != nil {
			return err
		}
	}
	if err := syncFolder(root); err != nil {
		return err
	}
	return errors.Join(captures.Rename(name, t.ID+SealingSuffix), syncFolder(captures))
}

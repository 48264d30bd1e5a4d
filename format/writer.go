package format

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurec/gpurec/format/columnwriter"
	"github.com/gpurec/gpurec/format/output"
	"github.com/parquet-go/parquet-go"
)

// maxGroupRows bounds a row group, and by it what a reader holds of one column:
// 128 Ki rows x 8 bytes = 1 MiB. A class of rows that fills one holds 20 MiB of the recorder.
const maxGroupRows = 128 << 10

// SegmentSuffix is what a recording that is not finished has after its name: the
// folder of segments.
const SegmentSuffix = ".d"

// Owner is the user that the files of a recording belong to.
type Owner = output.Owner

// Options are the choices that Create has to make.
type Options struct {
	// Force replaces an existing recording, and an unfinished one, of this name.
	Force bool
	Owner Owner
	// Limits bound the recording's size.
	Limits Limits
}

func (o Options) output() output.Options { return output.Options{Force: o.Force, Owner: o.Owner} }

// ErrExists says that the output, or an unfinished recording of its name, is there.
var ErrExists = output.ErrExists

// Writer makes a recording. Rows go to segment files in the folder PATH.d; Rotate
// finishes them, so that a crash costs only what came after the last Rotate; Finish
// merges them into PATH and removes the folder. Segments are brought to disk beside: that
// one was not is told by a later call. A Writer is not safe for concurrent use.
type Writer struct {
	out     *output.Destination
	path    string
	dir     string
	root    *os.Root // dir, wherever somebody moves it
	disk    *disk    // does what changes root
	opt     Options
	seq     int
	open    [numClasses]*segment
	columns [numClasses]*columnwriter.Writer[Row] // used again for every segment
	written int64                                 // bytes in finished segments, also those on their way to disk
	waiting []*segment                            // finished and perhaps not on disk yet, the oldest first

	turn        int    // number of the next Rotate
	turns       []turn // events that are finished, the oldest first; of a ring only
	doomed      []string
	doomedBytes int64
	kept        [numClasses][]kept  // facts and stacks that are finished
	rowBytes    [numClasses]float64 // what a row takes, as far as is known
}

// segment is one segment file; it holds rows of one class.
type segment struct {
	class  Class
	turn   int // number of the Rotate that finishes it
	number int
	file   *laterFile
	path   string
	rows   rowWriter
	count  int64 // rows
	lastNs int64 // end of the row that ended last
}

// writerOptions must be the same for segments and merged files: only then are
// column chunks copied instead of encoded again.
func writerOptions() []parquet.WriterOption {
	return []parquet.WriterOption{
		parquet.Compression(compression),
		parquet.PageBufferSize(pageBytes),
		parquet.MaxRowsPerRowGroup(maxGroupRows),
		parquet.CreatedBy("gpurec", fmt.Sprintf("%d.%d", SchemaMajor, SchemaMinor), ""),
	}
}

// Create starts the recording that will be path. It makes the folder for the
// segments and returns an error matching ErrExists if path or the folder exists
// and opt.Force is not set, and *output.Error if either may not be written to. Then
// nothing was changed.
func Create(path string, opt Options) (*Writer, error) {
	out, err := openRecording(path, opt)
	if err != nil {
		return nil, err
	}
	w := &Writer{out: out, path: path, dir: path + SegmentSuffix, opt: opt, rowBytes: firstRowBytes}
	if err := w.makeFolder(); err != nil {
		out.Close()
		return nil, err
	}
	return w, nil
}

// CheckOutput returns the error that Create would return for what is at path, and for its
// folder, and changes nothing.
func CheckOutput(path string, opt Options) error {
	out, err := openRecording(path, opt)
	if err != nil {
		return err
	}
	return out.Close()
}

// Dir returns the folder that holds the segments until Finish.
func (w *Writer) Dir() string { return w.dir }

// Bytes returns how much the finished segments take on disk.
func (w *Writer) Bytes() int64 { return w.written }

// own gives an open file to the recording's owner.
func (w *Writer) own(file *os.File) error {
	if !w.opt.Owner.Set {
		return nil
	}
	return file.Chown(w.opt.Owner.UID, w.opt.Owner.GID)
}

// SegmentError says that segments could not be written or finished, a full disk for
// example: all their rows are lost.
type SegmentError struct {
	Segments []LostSegment
	Err      error
}

// LostSegment names the segment of a class that the Rotate of a number was to finish; Turn
// returned this number when its rows were written.
type LostSegment struct {
	Rotation int
	Class    Class
}

func (e *SegmentError) Error() string { return "write segment: " + e.Err.Error() }
func (e *SegmentError) Unwrap() error { return e.Err }

// Write appends rows, all of class c, to the open segment of that class. The rows
// are copied; the caller may use the slice again. An error is a *SegmentError; the
// segments that it names are dropped and the next Write begins another.
func (w *Writer) Write(c Class, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	if w.open[c] == nil {
		s, err := w.openSegment(c)
		if err != nil {
			return &SegmentError{Segments: []LostSegment{{w.turn, c}}, Err: err}
		}
		w.open[c] = s
	}
	s := w.open[c]
	if _, err := s.rows.Write(rows); err != nil {
		w.drop(c)
		return &SegmentError{Segments: []LostSegment{{w.turn, c}}, Err: err}
	}
	s.count += int64(len(rows))
	for i := range rows {
		s.lastNs = max(s.lastNs, rows[i].StartNs+rows[i].DurNs)
	}
	return w.failure()
}

// drop gives the open segment of a class up.
func (w *Writer) drop(c Class) {
	if s := w.open[c]; s != nil {
		s.file.drop()
		w.open[c] = nil
	}
}

func (w *Writer) openSegment(c Class) (*segment, error) {
	w.seq++
	name := fmt.Sprintf("%06d-%s.parquet", w.seq, c)
	s := &segment{class: c, turn: w.turn, number: w.seq, file: w.disk.create(name), path: filepath.Join(w.dir, name)}
	if c < ClassMemory {
		options := append(writerOptions(), parquet.PageBufferSize(smallPageBytes)) // a buffer for each of 61 columns
		s.rows = parquet.NewGenericWriter[Row](s.file, options...)
		return s, nil
	}
	if w.columns[c] == nil {
		var err error
		if w.columns[c], err = columnwriter.New[Row](writerOptions()...); err != nil {
			return nil, err
		}
	}
	w.columns[c].Reset(s.file)
	s.rows = w.columns[c]
	return s, nil
}

// rowWriter writes a Parquet file of rows: a parquet.GenericWriter or, for rows without frames, a
// columnwriter.Writer.
type rowWriter interface {
	Write(rows []Row) (int, error)
	SetKeyValueMetadata(key, value string)
	Close() error
}

// Rotate finishes the open segments: their rows survive a crash once they are on disk, for
// which it does not wait (Flush does). meta is stored in each of them. What Drop took out is
// deleted. An error is a *SegmentError: the segments it names are dropped, all others stay as
// they are.
func (w *Writer) Rotate(meta Meta) error {
	var failed SegmentError
	meta.Complete = CompleteNo
	t := turn{number: w.turn}
	w.turn++
	var finished []*laterFile
	for c := range numClasses {
		s := w.open[c]
		if s == nil {
			continue
		}
		if err := closeParquet(s.rows, &meta); err != nil {
			failed.Segments = append(failed.Segments, LostSegment{t.number, c})
			failed.Err = errors.Join(failed.Err, err)
			w.drop(c)
			continue
		}
		s.file.finish()
		w.account(s, &t)
		w.waiting = append(w.waiting, s)
		w.open[c] = nil
		finished = append(finished, s.file)
	}
	if w.opt.Limits.Ring && len(t.events) > 0 {
		w.turns = append(w.turns, t)
	}
	if len(finished) > 0 { // else what is on disk does not say yet that they go
		w.removeDoomed(finished)
	}
	if failed.Err != nil {
		return &failed
	}
	return w.failure()
}

// closeParquet writes metadata and footer.
func closeParquet(rows rowWriter, meta *Meta) error {
	pairs, err := meta.pairs()
	if err != nil {
		return err
	}
	for _, kv := range pairs {
		rows.SetKeyValueMetadata(kv[0], kv[1])
	}
	return rows.Close()
}

// failure returns a *SegmentError if the disk refused something, and takes the rows out of
// the books that are lost by it.
func (w *Writer) failure() error {
	failures := w.disk.failures()
	if len(failures) == 0 {
		return nil
	}
	var failed SegmentError
	for _, f := range failures {
		failed.Err = errors.Join(failed.Err, f.err)
		for c, s := range w.open {
			if s != nil && s.file == f.file {
				failed.Segments = append(failed.Segments, LostSegment{s.turn, Class(c)})
				w.open[c] = nil
			}
		}
		w.waiting = slices.DeleteFunc(w.waiting, func(s *segment) bool {
			if s.file != f.file {
				return false
			}
			failed.Segments = append(failed.Segments, LostSegment{s.turn, s.class})
			w.unaccount(s)
			return true
		})
	}
	return &failed
}

// OnDisk returns the number of the first Rotate of which segments may not be on disk yet;
// those of all before are, if no error was returned.
func (w *Writer) FirstPendingRotation() int {
	w.waiting = slices.DeleteFunc(w.waiting, func(s *segment) bool { return s.file.isDone() })
	if len(w.waiting) > 0 {
		return w.waiting[0].turn
	}
	return w.turn
}

// Flush waits until everything that was rotated is on disk. An error is a *SegmentError.
func (w *Writer) Flush() error {
	w.disk.wait()
	return w.failure()
}

// Finish ends the recording: it rotates, merges the segments into the file and
// removes the folder. If it fails, the folder stays and Recover can try again.
func (w *Writer) Finish(meta Meta) error {
	if w.seq == 0 { // a recording of nothing is a recording
		if err := w.Write(
			ClassFact,
			[]Row{{Kind: KindNote, StartNs: meta.EndNs, Device: -1, Name: "empty", Message: "nothing happened"}},
		); err != nil {
			return err
		}
	}
	if err := w.Rotate(meta); err != nil {
		return err
	}
	w.removeDoomed(nil)
	if err := w.Flush(); err != nil {
		return err
	}
	meta.Complete = CompleteYes
	rec, err := openSegments(w.root, w.dir)
	if err != nil {
		return err
	}
	damaged, err := merge(rec, w.out, &meta)
	rec.Close()
	if err != nil {
		return err
	}
	if len(damaged) > 0 {
		return fmt.Errorf("merge segments: %w", errors.Join(damaged...))
	}
	return w.removeFolder()
}

// Close lets go of the folder of segments, which stays if neither Finish nor Abort has deleted
// it, with everything that was rotated.
func (w *Writer) Close() error {
	w.disk.wait()
	return errors.Join(w.root.Close(), w.out.Close())
}

// removeFolder deletes the folder if it is still there under its name.
func (w *Writer) removeFolder() error {
	w.disk.wait()
	_ = w.root.Close() // removeSegments opens it again
	return errors.Join(removeSegments(w.out.Folder(), w.out.Name()+SegmentSuffix), w.out.Close())
}

// Abort drops the recording: the folder and all that is in it.
func (w *Writer) Abort() error {
	for c := range numClasses {
		w.drop(c)
	}
	return w.removeFolder()
}

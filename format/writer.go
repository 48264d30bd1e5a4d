package format

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurec/gpurec/format/columnwriter"
	"github.com/gpurec/gpurec/format/output"
	"github.com/parquet-go/parquet-go"
)

// maxRowsPerRowGroup is the largest number of rows in a row group. It bounds the memory of readers
// to 1 MiB for each 64-bit column. A full row group takes 20 MiB in the recorder.
const maxRowsPerRowGroup = 128 << 10

// SegmentSuffix is the suffix of the segment folder: an unfinished recording PATH is the folder
// PATH.d.
const SegmentSuffix = ".d"

// Owner is the user and group that own the files of a recording.
type Owner = output.Owner

// Options are the options of Create and Recover.
type Options struct {
	// Force replaces an existing recording, or an unfinished one, of the same name.
	// Owner owns the new files. The zero value means the user of the process.
	Force bool
	Owner Owner
	// Limits bound the size of the recording on disk.
	Limits Limits
	// TracksRotations lets captures of a recording that is no ring leave out old events.
	TracksRotations bool
}

func (o Options) outputOptions() output.Options {
	return output.Options{Force: o.Force, Owner: o.Owner}
}

// ErrExists is the error for a recording, or an unfinished recording, that already exists.
var ErrExists = output.ErrExists

// Writer creates a recording. Write appends rows to segment files in the folder PATH.d. Rotate
// finishes the open segments, so a crash loses only rows after the last Rotate. Finish merges the
// segments into PATH and removes the folder. Segments are written asynchronously; a later call
// reports write errors. A Writer is not safe for concurrent use.
type Writer struct {
	out     *output.Destination
	path    string
	dir     string
	root    *os.Root   // dir, opened once, so that renaming dir has no effect
	disk    *diskQueue // changes files in root
	opt     Options
	seq     int
	open    [numRowClasses]*segmentFile
	columns [numRowClasses]columnFileWriter // one for each class of events, reused for every segment
	written int64                           // bytes of finished segments, on disk or not yet
	waiting []*segmentFile                  // finished segments that may not be on disk yet, oldest first

	rotation           int               // number of the next Rotate
	rotations          []segmentRotation // finished events that a ring has not dropped, oldest first
	pendingDeletes     []string
	pendingDeleteBytes int64
	retained           [numRowClasses][]retainedSegment // finished segments of facts and of stacks
	rowBytes           [numRowClasses]float64           // estimated size of a row in bytes, by class
}

// segmentFile is one segment file. All its rows have the same class.
type segmentFile struct {
	class    Class
	rotation int // number of the Rotate that finishes it
	number   int
	file     *asyncFile
	path     string
	rows     parquetRowWriter
	count    int64 // number of rows in the segment
	lastNs   int64 // latest end of a row, Unix ns
}

// parquetWriterOptions returns the options for segments and merged files. They must be equal:
// otherwise merge cannot copy column chunks and has to encode them again.
func parquetWriterOptions() []parquet.WriterOption {
	return []parquet.WriterOption{
		parquet.Compression(parquetCompression),
		parquet.PageBufferSize(parquetPageBytes),
		parquet.MaxRowsPerRowGroup(maxRowsPerRowGroup),
		parquet.CreatedBy("gpurec", fmt.Sprintf("%d.%d", SchemaMajor, SchemaMinor), ""),
	}
}

// Create starts a recording and creates its segment folder path + SegmentSuffix. It returns an
// error matching ErrExists if path or the folder exists and opt.Force is not set. It returns an
// *output.Error if gpurec may not write to either. On error, nothing was changed.
func Create(path string, opt Options) (*Writer, error) {
	out, err := checkRecordingPaths(path, opt)
	if err != nil {
		return nil, err
	}
	w := &Writer{out: out, path: path, dir: path + SegmentSuffix, opt: opt, rowBytes: assumedRowBytes}
	if err := w.createSegmentFolder(); err != nil {
		out.Close()
		return nil, err
	}
	return w, nil
}

// CheckOutput returns the error that Create would return for the same arguments. It changes
// nothing.
func CheckOutput(path string, opt Options) error {
	out, err := checkRecordingPaths(path, opt)
	if err != nil {
		return err
	}
	return out.Close()
}

// Dir returns the path of the segment folder, which exists until Finish.
func (w *Writer) Dir() string { return w.dir }

// Bytes returns the size of the finished segments on disk in bytes.
func (w *Writer) Bytes() int64 { return w.written }

// changeFileOwner changes the owner of an open file to the recording's owner.
func (w *Writer) changeFileOwner(file *os.File) error {
	if !w.opt.Owner.Set {
		return nil
	}
	return file.Chown(w.opt.Owner.UID, w.opt.Owner.GID)
}

// SegmentError is the error of segments that could not be written or finished, because of a full
// disk for example. All rows of these segments are lost.
type SegmentError struct {
	Segments []LostSegment
	Err      error
}

// LostSegment identifies a lost segment by its class and rotation. Rotation is the number that
// Writer.Rotation returned when the rows were written.
type LostSegment struct {
	Rotation int
	Class    Class
}

func (e *SegmentError) Error() string { return "write segment: " + e.Err.Error() }
func (e *SegmentError) Unwrap() error { return e.Err }

// Write appends rows, all of class c, to the open segment of that class. It sets their column class
// and copies them. Rows of kind progress keep only the columns of ProgressRow. An error is a
// *SegmentError: the segments in it are lost, and the next Write starts a new segment.
func (w *Writer) Write(c Class, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	s, err := w.openSegmentOfClass(c)
	if err != nil {
		return err
	}
	for i := range rows {
		rows[i].Class = c.String()
		s.lastNs = max(s.lastNs, rows[i].StartNs+rows[i].DurNs)
	}
	_, err = s.rows.Write(rows)
	return w.countWrittenRows(s, len(rows), err)
}

// WriteProgress appends rows of kind progress to the open segment of their class, like Write. It
// copies the rows, and allocates no memory for a row.
func (w *Writer) WriteProgress(rows []ProgressRow) error {
	if len(rows) == 0 {
		return nil
	}
	s, err := w.openSegmentOfClass(ClassProgress)
	if err != nil {
		return err
	}
	for i := range rows {
		s.lastNs = max(s.lastNs, rows[i].SeenNs)
	}
	return w.countWrittenRows(s, len(rows), s.rows.(*progressColumns).WriteProgress(rows))
}

// openSegmentOfClass returns the open segment of a class. It starts a segment if none is open. An
// error is a *SegmentError.
func (w *Writer) openSegmentOfClass(c Class) (*segmentFile, error) {
	if w.open[c] == nil {
		s, err := w.openSegment(c)
		if err != nil {
			return nil, &SegmentError{Segments: []LostSegment{{w.rotation, c}}, Err: err}
		}
		w.open[c] = s
	}
	return w.open[c], nil
}

// countWrittenRows counts rows that were written to an open segment. After a write error, it drops
// the segment and returns a *SegmentError.
func (w *Writer) countWrittenRows(s *segmentFile, rows int, err error) error {
	if err != nil {
		w.dropOpenSegment(s.class)
		return &SegmentError{Segments: []LostSegment{{w.rotation, s.class}}, Err: err}
	}
	s.count += int64(rows)
	return w.takeSegmentError()
}

// dropOpenSegment abandons the open segment of a class and deletes its file.
func (w *Writer) dropOpenSegment(c Class) {
	if s := w.open[c]; s != nil {
		s.file.queueRemoval()
		w.open[c] = nil
	}
}

// openSegment starts a new segment of a class.
func (w *Writer) openSegment(c Class) (*segmentFile, error) {
	w.seq++
	name := fmt.Sprintf("%06d-%s.parquet", w.seq, c)
	s := &segmentFile{
		class:    c,
		rotation: w.rotation,
		number:   w.seq,
		file:     w.disk.createFile(name),
		path:     filepath.Join(w.dir, name),
	}
	if c < ClassMemory {
		options := append(
			parquetWriterOptions(),
			parquet.PageBufferSize(smallParquetPageBytes),
		) // one buffer for each of 61 columns
		s.rows = parquet.NewGenericWriter[Row](s.file, options...)
		return s, nil
	}
	if w.columns[c] == nil {
		columns, err := newColumnFileWriter(c)
		if err != nil {
			return nil, err
		}
		w.columns[c] = columns
	}
	w.columns[c].Reset(s.file)
	s.rows = w.columns[c]
	return s, nil
}

// parquetRowWriter writes a Parquet file of rows. It is a parquet.GenericWriter, or a
// columnFileWriter for rows without frames.
type parquetRowWriter interface {
	Write(rows []Row) (int, error)
	SetKeyValueMetadata(key, value string)
	Close() error
}

// columnFileWriter writes Parquet files column by column, one file after the other. It is a
// columnwriter.Writer, or progressColumns for rows of kind progress.
type columnFileWriter interface {
	parquetRowWriter
	Reset(file io.Writer)
}

// newColumnFileWriter returns the columnFileWriter for a class of events.
func newColumnFileWriter(c Class) (columnFileWriter, error) {
	if c == ClassProgress {
		return newProgressColumns()
	}
	return columnwriter.New[Row](parquetWriterOptions()...)
}

// Rotate finishes the open segments and stores meta in each of them. Their rows survive a crash as
// soon as they are on disk. Rotate does not wait for the disk; Flush does. Rotate deletes the files
// of rotations that Drop returned. An error is a *SegmentError: the segments in it are lost, all
// others are unaffected.
func (w *Writer) Rotate(meta Meta) error {
	var failed SegmentError
	meta.Complete = CompleteNo
	r := segmentRotation{number: w.rotation}
	w.rotation++
	var finished []*asyncFile
	for c := range numRowClasses {
		s := w.open[c]
		if s == nil {
			continue
		}
		if err := closeParquetWriter(s.rows, &meta); err != nil {
			failed.Segments = append(failed.Segments, LostSegment{r.number, c})
			failed.Err = errors.Join(failed.Err, err)
			w.dropOpenSegment(c)
			continue
		}
		s.file.queueFinish()
		w.countSegment(s, &r)
		w.waiting = append(w.waiting, s)
		w.open[c] = nil
		finished = append(finished, s.file)
	}
	if (w.opt.Limits.Ring || w.opt.TracksRotations) && len(r.events) > 0 {
		w.rotations = append(w.rotations, r)
	}
	if len(finished) > 0 { // without a new segment, metadata on disk still counts the dropped rows
		w.deleteDroppedFiles(finished)
	}
	if failed.Err != nil {
		return &failed
	}
	return w.takeSegmentError()
}

// closeParquetWriter stores the metadata and writes the footer.
func closeParquetWriter(rows parquetRowWriter, meta *Meta) error {
	pairs, err := meta.keyValuePairs()
	if err != nil {
		return err
	}
	for _, kv := range pairs {
		rows.SetKeyValueMetadata(kv[0], kv[1])
	}
	return rows.Close()
}

// takeSegmentError returns a *SegmentError if the disk reported errors, and subtracts the lost
// segments from the sizes and row counts.
func (w *Writer) takeSegmentError() error {
	failures := w.disk.takeFailures()
	if len(failures) == 0 {
		return nil
	}
	var failed SegmentError
	for _, f := range failures {
		failed.Err = errors.Join(failed.Err, f.err)
		for c, s := range w.open {
			if s != nil && s.file == f.file {
				failed.Segments = append(failed.Segments, LostSegment{s.rotation, Class(c)})
				w.open[c] = nil
			}
		}
		w.waiting = slices.DeleteFunc(w.waiting, func(s *segmentFile) bool {
			if s.file != f.file {
				return false
			}
			failed.Segments = append(failed.Segments, LostSegment{s.rotation, s.class})
			w.uncountSegment(s)
			return true
		})
	}
	return &failed
}

// FirstPendingRotation returns the number of the first rotation whose segments may not be on disk
// yet. All earlier rotations are on disk, except for segments in a returned *SegmentError.
func (w *Writer) FirstPendingRotation() int {
	w.waiting = slices.DeleteFunc(w.waiting, func(s *segmentFile) bool { return s.file.isOnDisk() })
	if len(w.waiting) > 0 {
		return w.waiting[0].rotation
	}
	return w.rotation
}

// Flush waits until all finished segments are on disk. An error is a *SegmentError.
func (w *Writer) Flush() error {
	w.disk.waitForJobs()
	return w.takeSegmentError()
}

// Finish ends the recording: it rotates, merges the segments into the file and removes the folder.
// On error, the folder remains and Recover can try again.
func (w *Writer) Finish(meta Meta) error {
	if w.seq == 0 { // a recording without events is still a valid file
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
	w.deleteDroppedFiles(nil)
	if err := w.Flush(); err != nil {
		return err
	}
	meta.Complete = CompleteYes
	rec, err := openSegmentFolder(w.root, w.dir)
	if err != nil {
		return err
	}
	damaged, err := mergeSegments(rec, w.out, &meta)
	rec.Close()
	if err != nil {
		return err
	}
	if len(damaged) > 0 {
		return fmt.Errorf("merge segments: %w", errors.Join(damaged...))
	}
	return w.removeSegmentFolder()
}

// Close waits for the disk and closes the segment folder. If neither Finish nor Abort was called,
// the folder remains with all finished segments.
func (w *Writer) Close() error {
	w.disk.waitForJobs()
	return errors.Join(w.root.Close(), w.out.Close())
}

// removeSegmentFolder deletes the segment folder, unless it was renamed.
func (w *Writer) removeSegmentFolder() error {
	w.disk.waitForJobs()
	_ = w.root.Close() // removeSegments opens it again
	return errors.Join(removeSegments(w.out.Folder(), w.out.Name()+SegmentSuffix), w.out.Close())
}

// Abort deletes the segment folder and everything in it. No file remains.
func (w *Writer) Abort() error {
	for c := range numRowClasses {
		w.dropOpenSegment(c)
	}
	return w.removeSegmentFolder()
}

package format

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"
)

// maxGroupRows bounds a row group, and by it what a reader holds of one column:
// 128 Ki rows x 8 bytes = 1 MiB. A class of rows that fills one holds 20 MiB of the recorder.
const maxGroupRows = 128 << 10

// SegmentSuffix is what a recording that is not finished has after its name: the
// folder of segments.
const SegmentSuffix = ".d"

// Owner says to whom files belong that are written with root's rights on behalf of
// somebody else. The zero value leaves them to the process's own user.
type Owner struct {
	UID, GID int
	Set      bool
}

// Options are the choices that Create has to make.
type Options struct {
	// Force replaces an existing recording, and an unfinished one, of this name.
	Force bool
	Owner Owner
	// Limits bound the recording's size.
	Limits Limits
}

// ErrExists says that the output, or an unfinished recording of its name, is there.
var ErrExists = fs.ErrExist

// Writer makes a recording. Rows go to segment files in the folder PATH.d; Rotate
// finishes them, so that a crash costs only what came after the last Rotate; Finish
// merges them into PATH and removes the folder. A Writer is not safe for concurrent
// use.
type Writer struct {
	path    string
	dir     string
	root    *os.Root // dir, wherever somebody moves it
	opt     Options
	seq     int
	open    [numClasses]*segment
	columns [numClasses]*columnWriter // used again for every segment
	written int64                     // bytes in finished segments

	turn        int    // number of the next Rotate
	turns       []turn // events that are on disk, the oldest first; of a ring only
	doomed      []string
	doomedBytes int64
	kept        [numClasses][]kept  // facts and stacks on disk
	rowBytes    [numClasses]float64 // what a row takes, as far as is known
}

// segment is one open segment file; it holds rows of one class.
type segment struct {
	number int
	file   *countedFile
	path   string
	rows   rowWriter
	count  int64 // rows
	lastNs int64 // end of the row that ended last
}

// countedFile knows how many bytes were written to it.
type countedFile struct {
	*os.File
	bytes int64
}

func (f *countedFile) Write(b []byte) (int, error) {
	n, err := f.File.Write(b)
	f.bytes += int64(n)
	return n, err
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
// and opt.Force is not set.
func Create(path string, opt Options) (*Writer, error) {
	w := &Writer{path: path, dir: path + SegmentSuffix, opt: opt, rowBytes: firstRowBytes}
	for _, p := range []string{w.path, w.dir} {
		_, err := os.Lstat(p)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		case !opt.Force:
			return nil, &fs.PathError{Op: "create recording", Path: p, Err: ErrExists}
		}
	}
	if opt.Force {
		if err := removeSegments(w.dir); err != nil {
			return nil, err
		}
	}
	if err := os.Mkdir(w.dir, 0o700); err != nil {
		return nil, err
	}
	if err := w.openFolder(); err != nil {
		os.Remove(w.dir)
		return nil, err
	}
	return w, nil
}

// openFolder opens the folder and gives it to its owner. From then on the owner can replace
// it and all that is in it, so that whoever writes with root's rights must not go by names:
// what is written goes to this very folder, and files change hands when they are open.
func (w *Writer) openFolder() (err error) {
	if w.root, err = openFolder(w.dir); err != nil || !w.opt.Owner.Set {
		return err
	}
	return w.root.Chown(".", w.opt.Owner.UID, w.opt.Owner.GID)
}

// openFolder opens a folder, but none that a link leads to.
func openFolder(path string) (*os.Root, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	there, err := os.Lstat(path)
	if err == nil {
		var opened fs.FileInfo
		if opened, err = root.Stat("."); err == nil && !os.SameFile(there, opened) {
			err = &fs.PathError{Op: "open folder of segments", Path: path, Err: errors.New("is a link")}
		}
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return root, nil
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

// remove deletes a file of the folder.
func (w *Writer) remove(path string) error { return w.root.Remove(filepath.Base(path)) }

// finished gives a file of the folder the name that it has when it is whole.
func (w *Writer) finished(path string) error {
	name := filepath.Base(path)
	return w.root.Rename(name+".tmp", name)
}

// SegmentError says that segments could not be written or finished, a full disk for
// example: all rows of Classes since the last Rotate are lost.
type SegmentError struct {
	Classes []Class
	Err     error
}

func (e *SegmentError) Error() string { return "write segment: " + e.Err.Error() }
func (e *SegmentError) Unwrap() error { return e.Err }

// Write appends rows, all of class c, to the open segment of that class. The rows
// are copied; the caller may use the slice again. An error is a *SegmentError; the
// segment is then dropped and the next Write begins another.
func (w *Writer) Write(c Class, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	if w.open[c] == nil {
		s, err := w.openSegment(c)
		if err != nil {
			return &SegmentError{Classes: []Class{c}, Err: err}
		}
		w.open[c] = s
	}
	s := w.open[c]
	if err := s.rows.writeRows(rows); err != nil {
		w.drop(c)
		return &SegmentError{Classes: []Class{c}, Err: err}
	}
	s.count += int64(len(rows))
	for i := range rows {
		s.lastNs = max(s.lastNs, rows[i].StartNs+rows[i].DurNs)
	}
	return nil
}

// drop gives the open segment of a class up.
func (w *Writer) drop(c Class) {
	if s := w.open[c]; s != nil {
		s.file.Close()
		_ = w.remove(s.path + ".tmp") // readers pass it over
		w.open[c] = nil
	}
}

func (w *Writer) openSegment(c Class) (*segment, error) {
	w.seq++
	path := filepath.Join(w.dir, fmt.Sprintf("%06d-%s.parquet", w.seq, c))
	file, err := w.create(path + ".tmp")
	if err != nil {
		return nil, err
	}
	s := &segment{number: w.seq, file: file, path: path}
	if c < ClassMemory {
		options := append(writerOptions(), parquet.PageBufferSize(smallPageBytes)) // a buffer for each of 61 columns
		s.rows = libraryWriter{parquet.NewGenericWriter[Row](file, options...)}
		return s, nil
	}
	if w.columns[c] == nil {
		if w.columns[c], err = newColumnWriter(); err != nil {
			return nil, err
		}
	}
	w.columns[c].reset(file)
	s.rows = w.columns[c]
	return s, nil
}

// rowWriter writes a Parquet file of rows: libraryWriter or columnWriter.
type rowWriter interface {
	writeRows(rows []Row) error
	SetKeyValueMetadata(key, value string)
	Close() error
}

type libraryWriter struct{ *parquet.GenericWriter[Row] }

func (w libraryWriter) writeRows(rows []Row) error {
	_, err := w.GenericWriter.Write(rows)
	return err
}

// create makes a file of the recording's owner in the folder.
func (w *Writer) create(path string) (*countedFile, error) {
	file, err := w.root.OpenFile(filepath.Base(path), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if err := w.own(file); err != nil {
		file.Close()
		return nil, err
	}
	return &countedFile{File: file}, nil
}

// Rotate finishes the open segments: their rows survive a crash from here on. meta
// is stored in each of them. What Drop took out is deleted. An error is a *SegmentError:
// the segments it names are dropped, all others stay as they are.
func (w *Writer) Rotate(meta Meta) error {
	var failed SegmentError
	meta.Complete = CompleteNo
	t, wrote := turn{number: w.turn}, false
	w.turn++
	for c := range numClasses {
		s := w.open[c]
		if s == nil {
			continue
		}
		if err := w.finishSegment(c, s, &meta, &t); err != nil {
			failed.Classes = append(failed.Classes, c)
			failed.Err = errors.Join(failed.Err, err)
			w.drop(c)
		} else {
			wrote = true
		}
		w.open[c] = nil
	}
	if w.opt.Limits.Ring && len(t.events) > 0 {
		w.turns = append(w.turns, t)
	}
	if wrote { // else what is on disk does not say yet that they go
		failed.Err = errors.Join(failed.Err, w.removeDoomed())
	}
	if failed.Err != nil {
		return &failed
	}
	return nil
}

func (w *Writer) finishSegment(c Class, s *segment, meta *Meta, t *turn) error {
	size, err := closeParquet(s.file, s.rows, meta)
	if err != nil {
		return err
	}
	if err := w.finished(s.path); err != nil {
		return err
	}
	w.account(c, s, size, t)
	return nil
}

// closeParquet writes metadata and footer, brings the file to disk and closes it.
func closeParquet(file parquetFile, rows rowWriter, meta *Meta) (size int64, err error) {
	defer func() { err = errors.Join(err, file.Close()) }()
	pairs, err := meta.pairs()
	if err != nil {
		return 0, err
	}
	for _, kv := range pairs {
		rows.SetKeyValueMetadata(kv[0], kv[1])
	}
	if err := rows.Close(); err != nil {
		return 0, err
	}
	if err := file.Sync(); err != nil {
		return 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// parquetFile is the file that a Parquet writer writes to.
type parquetFile interface {
	Close() error
	Sync() error
	Stat() (fs.FileInfo, error)
}

// Finish ends the recording: it rotates, merges the segments into the file and
// removes the folder. If it fails, the folder stays and Recover can try again.
func (w *Writer) Finish(meta Meta) error {
	if w.seq == 0 { // a recording of nothing is a recording
		if err := w.Write(ClassFact, []Row{{Kind: KindNote, StartNs: meta.EndNs, Device: -1, Name: "empty", Message: "nothing happened"}}); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Rotate(meta), w.removeDoomed()); err != nil {
		return err
	}
	meta.Complete = CompleteYes
	rec, err := openSegments(w.root, w.dir)
	if err != nil {
		return err
	}
	damaged, err := merge(rec, w.path, &meta, w.own)
	rec.Close()
	if err != nil {
		return err
	}
	if len(damaged) > 0 {
		return fmt.Errorf("merge segments: %w", errors.Join(damaged...))
	}
	return w.removeFolder()
}

// Close lets go of the folder of segments, which stays if neither Finish nor Abort has deleted it.
func (w *Writer) Close() error { return w.root.Close() }

// removeFolder deletes the folder if it is still there under its name.
func (w *Writer) removeFolder() error {
	w.root.Close()
	return removeSegments(w.dir)
}

// Abort drops the recording: the folder and all that is in it.
func (w *Writer) Abort() error {
	for c := range numClasses {
		w.drop(c)
	}
	return w.removeFolder()
}

// removeSegments deletes a folder of segments and nothing else: only names that a
// Writer makes, then the folder if that left it empty.
func removeSegments(dir string) error {
	root, err := openFolder(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if isSegmentName(e.Name()) {
			if err := root.Remove(e.Name()); err != nil {
				return err
			}
		}
	}
	return os.Remove(dir)
}

// isSegmentName reports whether a Writer could have made a file of this name:
// 000001-call.parquet, or with .tmp behind while it was open.
func isSegmentName(name string) bool {
	_, ok := parseSegmentName(strings.TrimSuffix(name, ".tmp"))
	return ok
}

package format

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/parquet-go/parquet-go"
)

// Errors of Open for files that are not recordings.
var (
	// ErrEmpty is the error for a file without bytes.
	ErrEmpty = errors.New("is empty")
	// ErrNotParquet is the error for a file without the magic number of Parquet at its start.
	ErrNotParquet = errors.New("is not a Parquet file")
	// ErrTruncated is the error for a Parquet file whose end is missing.
	ErrTruncated = errors.New("is cut off: the end of the Parquet file is missing")
	// ErrNotRecording is the error for a Parquet file that gpurec did not write.
	ErrNotRecording = errors.New("is a Parquet file but not a gpurec recording")
)

// maxAcceptedGroupRows is the largest accepted number of rows in a row group. It bounds the memory
// that a damaged or hostile file can make a reader allocate for one column: 16 Mi rows x 8 bytes =
// 128 MiB.
const maxAcceptedGroupRows = 16 << 20

// Recording is an open recording: a finished file or a segment folder. Its methods and those of its
// Groups are safe for concurrent use.
type Recording struct {
	// Path is the argument of Open.
	Path string
	// Meta is the recording's metadata. For a folder it is the metadata of the newest segment.
	Meta Meta
	// Damaged has one error for each segment that was left out because it could not be read.
	Damaged []error

	ctx     context.Context // ends reading; nil after Open
	files   []*os.File
	paths   []string // of files
	groups  []*Group
	size    int64
	aliases aliasTable
}

// Open opens a recording for reading. Its errors contain the path. They match ErrEmpty,
// ErrNotParquet, ErrTruncated, ErrNotRecording, ErrNoSegments, *VersionError or an error of package
// os. Call Close to release the files.
func Open(path string) (*Recording, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		root, err := os.OpenRoot(path)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		return openSegmentFolder(root, path)
	}
	rec := &Recording{Path: path}
	if err := rec.addFile(os.Open, path, path); err != nil {
		rec.Close()
		return nil, err
	}
	return rec, nil
}

// openSegmentFolder opens the segments in the folder root. Errors name the folder path.
func openSegmentFolder(root *os.Root, path string) (*Recording, error) {
	rec := &Recording{Path: path}
	return rec.addSegments(root, root.Open)
}

// addSegments opens the segments in the folder root with open, and returns the recording. Errors name its path.
func (r *Recording) addSegments(root *os.Root, open func(string) (*os.File, error)) (*Recording, error) {
	path := r.Path
	files, err := listSegmentFiles(root, path)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		// A ring that is being recorded deletes segments at any time.
		if err := r.addFile(open, filepath.Base(f), f); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.Damaged = append(r.Damaged, err)
		}
	}
	if len(r.files) == 0 {
		r.Close()
		if len(r.Damaged) > 0 {
			return nil, r.Damaged[0]
		}
		return nil, &os.PathError{Op: "open recording", Path: path, Err: ErrNoSegments}
	}
	return r, nil
}

// addFile opens one Parquet file and appends its row groups to the recording.
func (r *Recording) addFile(open func(string) (*os.File, error), name, path string) error {
	file, err := open(name)
	if err != nil {
		return err
	}
	pf, meta, err := openParquetFile(r.readerOf(file), file)
	if err != nil {
		file.Close()
		return &os.PathError{Op: "open recording", Path: path, Err: err}
	}
	r.files, r.paths = append(r.files, file), append(r.paths, path)
	r.size += pf.Size()
	// The metadata of a capture is in segments of its own, which may end before the last one of the ring.
	ofCapture := meta.Trigger != nil
	if len(r.files) == 1 || ofCapture || meta.EndNs >= r.Meta.EndNs && r.Meta.Trigger == nil {
		r.Meta = *meta
	}
	columns := columnPositions(pf.Schema())
	for i, rows := range pf.RowGroups() {
		if n := rows.NumRows(); n < 0 || n > maxAcceptedGroupRows {
			return &os.PathError{Op: "open recording", Path: path, Err: fmt.Errorf("damaged: row group of %d rows", n)}
		}
		r.groups = append(r.groups, &Group{
			rows: rows, columns: columns, path: path, index: i, recording: r,
			reads: make([]atomic.Int32, len(rows.ColumnChunks())),
		})
	}
	return nil
}

// openParquetFile opens a file, whose bytes come from in, and reads its metadata. It returns an error if the Parquet
// library panics on a crafted file.
func openParquetFile(in io.ReaderAt, file *os.File) (pf *parquet.File, meta *Meta, err error) {
	defer recoverPanic(&err)
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := checkMagic(in, info.Size()); err != nil {
		return nil, nil, err
	}
	pf, err = parquet.OpenFile(in, info.Size(), parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, nil, fmt.Errorf("read Parquet footer: %w", err)
	}
	meta, err = parseMeta(pf.Lookup)
	return pf, meta, err
}

// parquetMagic is the magic number at the start and the end of a Parquet file.
const parquetMagic = "PAR1"

// checkMagic returns the error for a file that is empty, not Parquet, or truncated.
func checkMagic(r io.ReaderAt, size int64) error {
	if size == 0 {
		return ErrEmpty
	}
	var head, tail [len(parquetMagic)]byte
	n, err := r.ReadAt(head[:], 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case string(head[:n]) != parquetMagic:
		return ErrNotParquet
	}
	if size < 12 { // magic, footer length, magic
		return ErrTruncated
	}
	if _, err := r.ReadAt(tail[:], size-int64(len(parquetMagic))); err != nil {
		return err
	}
	if string(tail[:]) != parquetMagic {
		return ErrTruncated
	}
	return nil
}

// recoverPanic converts a panic of the Parquet library to an error. Callers defer it.
func recoverPanic(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("damaged: %v", p)
	}
}

// Groups returns the recording's row groups. A finished file has them by class, in the order of the
// Class constants. A folder has them in the order of writing.
func (r *Recording) Groups() []*Group { return r.groups }

// Files returns the paths of the recording's Parquet files: one of a finished recording, those of the
// readable segments of a folder. They begin with Path.
func (r *Recording) Files() []string { return r.paths }

// Size returns the recording's size on disk in bytes.
func (r *Recording) Size() int64 { return r.size }

// NumRows returns the number of rows of all kinds.
func (r *Recording) NumRows() int64 {
	var n int64
	for _, g := range r.groups {
		n += g.rows.NumRows()
	}
	return n
}

// Close closes the files of the recording.
func (r *Recording) Close() error {
	var err error
	for _, f := range r.files {
		err = errors.Join(err, f.Close())
	}
	r.files, r.paths, r.groups = nil, nil, nil
	return err
}

// Rows calls yield for every row of the classes, in file order, until yield returns an error. Use
// it for facts, stacks and samples. Reading calls by column is a hundred times faster. The Row is
// reused after yield returns, but its strings and frames are not.
func (r *Recording) Rows(yield func(*Row) error, classes ...Class) error {
	for _, g := range r.groups {
		for _, c := range classes {
			if g.Class() == c {
				if err := g.eachRow(yield); err != nil {
					return fmt.Errorf("read %s: %w", g.path, err)
				}
			}
		}
	}
	return nil
}

func (g *Group) eachRow(yield func(*Row) error) (err error) {
	defer recoverPanic(&err)
	in := parquet.NewGenericRowGroupReader[Row](g.rows)
	defer in.Close()
	rows := make([]Row, 64)
	for {
		n, err := in.Read(rows)
		for i := range rows[:n] {
			if len(rows[i].Frames) == 0 {
				rows[i].Frames = nil
			}
			if err := yield(&rows[i]); err != nil {
				return err
			}
		}
		clear(rows)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

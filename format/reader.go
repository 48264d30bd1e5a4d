package format

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/parquet-go/parquet-go"
)

// Errors that say in one word what is wrong with a file that is no recording.
var (
	// ErrEmpty: the file has no bytes.
	ErrEmpty = errors.New("is empty")
	// ErrNotParquet: the file does not begin as a Parquet file does.
	ErrNotParquet = errors.New("is not a Parquet file")
	// ErrTruncated: the file begins as a Parquet file but its end is missing.
	ErrTruncated = errors.New("is cut off: the end of the Parquet file is missing")
	// ErrNotRecording: a Parquet file that gpurec did not write.
	ErrNotRecording = errors.New("is a Parquet file but not a gpurec recording")
)

// maxReadRows bounds what a damaged or crafted file can make a reader allocate for
// one column: 16 Mi rows x 8 bytes = 128 MiB, 64 times what a Writer makes.
const maxReadRows = 16 << 20

// Recording is an opened recording: a finished file or a folder of segments. Its
// methods, and those of its Groups, may be used by several goroutines.
type Recording struct {
	// Path is what Open was given.
	Path string
	// Meta is the recording's metadata; of a folder, that of its newest segment.
	Meta Meta
	// Damaged has one error per segment that could not be read and is left out.
	Damaged []error

	files  []*os.File
	groups []*Group
	size   int64
}

// Open opens a recording for reading. Errors name the path and match ErrEmpty,
// ErrNotParquet, ErrTruncated, ErrNotRecording, ErrNoSegments, *VersionError or an
// error of package os.
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
		return openSegments(root, path)
	}
	rec := &Recording{Path: path}
	if err := rec.add(os.Open, path, path); err != nil {
		rec.Close()
		return nil, err
	}
	return rec, nil
}

// openSegments opens the segments in a folder that is called path.
func openSegments(root *os.Root, path string) (*Recording, error) {
	files, err := segmentFiles(root, path)
	if err != nil {
		return nil, err
	}
	rec := &Recording{Path: path}
	for _, f := range files {
		// a ring that is being recorded deletes some
		if err := rec.add(root.Open, filepath.Base(f), f); err != nil && !errors.Is(err, os.ErrNotExist) {
			rec.Damaged = append(rec.Damaged, err)
		}
	}
	if len(rec.files) == 0 {
		rec.Close()
		if len(rec.Damaged) > 0 {
			return nil, rec.Damaged[0]
		}
		return nil, &os.PathError{Op: "open recording", Path: path, Err: ErrNoSegments}
	}
	return rec, nil
}

// add opens one Parquet file and appends its row groups.
func (r *Recording) add(open func(string) (*os.File, error), name, path string) error {
	file, err := open(name)
	if err != nil {
		return err
	}
	pf, meta, err := openParquet(file)
	if err != nil {
		file.Close()
		return &os.PathError{Op: "open recording", Path: path, Err: err}
	}
	r.files = append(r.files, file)
	r.size += pf.Size()
	if len(r.files) == 1 || meta.EndNs >= r.Meta.EndNs {
		r.Meta = *meta
	}
	columns := columnIndex(pf.Schema())
	for i, rows := range pf.RowGroups() {
		if n := rows.NumRows(); n < 0 || n > maxReadRows {
			return &os.PathError{Op: "open recording", Path: path, Err: fmt.Errorf("damaged: row group of %d rows", n)}
		}
		r.groups = append(r.groups, &Group{rows: rows, columns: columns, path: path, index: i})
	}
	return nil
}

// openParquet opens the file and reads its metadata. Crafted files can make the
// Parquet library panic; that becomes an error here.
func openParquet(file *os.File) (pf *parquet.File, meta *Meta, err error) {
	defer recovered(&err)
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	if err := checkMagic(file, info.Size()); err != nil {
		return nil, nil, err
	}
	pf, err = parquet.OpenFile(file, info.Size(), parquet.SkipBloomFilters(true), parquet.SkipPageIndex(true))
	if err != nil {
		return nil, nil, fmt.Errorf("read Parquet footer: %w", err)
	}
	meta, err = parseMeta(pf.Lookup)
	return pf, meta, err
}

// magic is how a Parquet file begins and ends.
const magic = "PAR1"

// checkMagic tells the ways in which a file is no whole Parquet file apart.
func checkMagic(r io.ReaderAt, size int64) error {
	if size == 0 {
		return ErrEmpty
	}
	var head, tail [len(magic)]byte
	if n, _ := r.ReadAt(head[:], 0); string(head[:n]) != magic {
		return ErrNotParquet
	}
	if size < 12 { // magic, footer length, magic
		return ErrTruncated
	}
	if _, err := r.ReadAt(tail[:], size-int64(len(magic))); err != nil {
		return err
	}
	if string(tail[:]) != magic {
		return ErrTruncated
	}
	return nil
}

// recovered turns a panic of the Parquet library into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("damaged: %v", p)
	}
}

// Groups returns the recording's row groups. In a finished file facts come first,
// then stacks, samples, memory calls and other calls; in a folder they are in the
// order they were written.
func (r *Recording) Groups() []*Group { return r.groups }

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
	r.files, r.groups = nil, nil
	return err
}

// Rows calls yield for every row of the classes, whole rows in file order. It is
// for the few rows of facts, stacks and samples; calls are read by column, which is
// a hundred times faster. The row is used again after yield returns, but not what
// its strings and frames point to.
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
	defer recovered(&err)
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

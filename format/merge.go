package format

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/gpurec/gpurec/format/output"
	"github.com/parquet-go/parquet-go"
)

// ErrNoSegments is the error for a segment folder without a finished segment.
var ErrNoSegments = errors.New("holds no finished segment")

// Recover finishes a recording that was cut off: it merges the finished segments of the folder dir
// into the file path and removes the folder. It leaves out segments that it cannot read, returns
// one error for each, and then keeps the folder. Calls that the metadata counts as recorded but no
// segment holds become lost calls. Recover replaces an existing file only if opt.Force is set. It
// returns an *output.Error, and changes nothing, if gpurec may not write to path.
func Recover(dir, path string, opt Options) (damaged []error, err error) {
	out, err := output.Open(path, opt.outputOptions())
	if err != nil {
		return nil, err
	}
	defer out.Close()
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	root, err := output.OpenFolder(parent, filepath.Base(dir)) // OpenFolder follows no link
	if err != nil {
		return nil, output.WithPath(err, dir)
	}
	rec, err := openSegmentFolder(root, dir)
	root.Close()
	if err != nil {
		return nil, err
	}
	meta := rec.Meta
	meta.Complete = CompleteRecovered
	meta.countMissingAsLost(rec)
	damaged, err = mergeSegments(rec, out, &meta)
	rec.Close() // Windows cannot delete open files
	if err != nil || len(damaged) > 0 {
		return damaged, err
	}
	return nil, removeSegments(parent, filepath.Base(dir))
}

// countMissingAsLost corrects the counts of an unfinished recording: every call that was seen and
// that no segment holds becomes lost. So does every recorded row of the classes progress and host. The newest
// metadata on disk may count calls of segments that were never written, and calls that were still
// in the ring buffer.
func (m *Meta) countMissingAsLost(rec *Recording) {
	var missing [numRowClasses]int64
	for name, c := range m.Calls {
		missing[rowClassOfCallClass(name)] += c.Recorded
	}
	for _, g := range rec.Groups() {
		missing[g.Class()] -= int64(g.NumRows())
	}
	m.Progress = m.Progress.countMissingAsLost(missing[ClassProgress])
	m.HostRows = m.HostRows.countMissingAsLost(missing[ClassHost])
	if n := m.KernelArgs; n != nil {
		counts := *n
		counts.RowCount = *n.RowCount.countMissingAsLost(missing[ClassArguments])
		m.KernelArgs = &counts
	}
	m.Calls = maps.Clone(m.Calls)
	for _, name := range slices.Sorted(maps.Keys(m.Calls)) { // the rows do not tell which calls of a class are missing
		c, of := m.Calls[name], &missing[rowClassOfCallClass(name)]
		n := max(0, min(*of, c.Recorded))
		c.Recorded -= n
		c.Lost += n
		c.Open, c.Abandoned = min(c.Open, c.Recorded), min(c.Abandoned, c.Recorded)
		*of -= n
		c.Lost = max(c.Lost, c.Seen-c.Recorded-c.Dropped)
		c.Seen = c.Recorded + c.Lost + c.Dropped // the recorder counts seen calls before the others
		m.Calls[name] = c
	}
}

// countMissingAsLost returns the counts of a class that has -missing rows.
func (c *RowCount) countMissingAsLost(missing int64) *RowCount {
	if c == nil {
		return nil
	}
	n := max(0, missing+c.Recorded)
	return &RowCount{Recorded: c.Recorded - n, Lost: c.Lost + n, Dropped: c.Dropped}
}

// rowClassOfCallClass returns the class of the rows that hold the calls of a class in Meta.Calls.
func rowClassOfCallClass(name string) Class {
	switch name {
	case ClassMemory.String():
		return ClassMemory
	case ClassAllocator.String():
		return ClassAllocator
	}
	return ClassCall
}

// mergeSegments writes all readable segments into a new file. It copies row groups of calls and
// events byte for byte. It joins row groups of facts, stacks and samples into as few as possible.
func mergeSegments(rec *Recording, to *output.Destination, meta *Meta) (damaged []error, err error) {
	// The temporary file is in the folder of the final name: the disk of the segment folder may be
	// full.
	file, err := to.Create()
	if err != nil {
		return nil, fmt.Errorf("merge segments: %w", err)
	}
	out := parquet.NewGenericWriter[Row](file, parquetWriterOptions()...)
	for class := range numRowClasses {
		if err := mergeRowsOfClass(out, rec, class); err != nil {
			file.Discard()
			return nil, fmt.Errorf("merge segments: %w", err)
		}
	}
	meta.Cost.FileBytes = rec.Size()
	if err := errors.Join(closeParquetWriter(out, meta), file.Sync()); err != nil {
		file.Discard()
		return nil, fmt.Errorf("merge segments: %w", err)
	}
	if err := file.Commit(); err != nil {
		return nil, fmt.Errorf("merge segments: %w", err)
	}
	return rec.Damaged, nil
}

// mergeRowsOfClass copies all rows of a class to the merged file.
func mergeRowsOfClass(out *parquet.GenericWriter[Row], rec *Recording, class Class) error {
	rows := make([]Row, 256)
	for _, g := range rec.Groups() {
		if g.Class() != class {
			continue
		}
		if class >= ClassMemory {
			_, err := out.WriteRowGroup(g.rows)
			if err == nil {
				continue
			}
			if !errors.Is(err, parquet.ErrRowGroupSchemaMismatch) { // an older version's segment: encode it again
				return err
			}
		}
		if err := reencodeRows(out, g, rows); err != nil {
			return err
		}
	}
	return out.Flush()
}

// reencodeRows decodes the rows of a group and encodes them again, with rows as buffer.
func reencodeRows(out *parquet.GenericWriter[Row], g *Group, rows []Row) error {
	in := parquet.NewGenericRowGroupReader[Row](g.rows)
	defer in.Close()
	for {
		n, err := in.Read(rows)
		for i := range rows[:n] {
			rows[i].Class = g.Class().String() // older versions did not write it
		}
		if _, werr := out.Write(rows[:n]); werr != nil {
			return werr
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

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

// ErrNoSegments says that a segment folder holds no finished segment.
var ErrNoSegments = errors.New("holds no finished segment")

// Recover finishes a recording that was cut off: it merges the finished segments of
// the folder dir into path and removes the folder. It returns one error per segment
// that could not be read and was left out; the folder then stays. Calls that the metadata
// holds as recorded and no segment has are lost. Existing files are replaced only if
// opt.Force is set. An *output.Error says that path may not be written to; then nothing
// was changed.
func Recover(dir, path string, opt Options) (damaged []error, err error) {
	out, err := output.Open(path, opt.output())
	if err != nil {
		return nil, err
	}
	defer out.Close()
	parent, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	root, err := output.OpenFolder(parent, filepath.Base(dir)) // a link's target is not removed
	if err != nil {
		return nil, output.WithPath(err, dir)
	}
	rec, err := openSegments(root, dir)
	root.Close()
	if err != nil {
		return nil, err
	}
	meta := rec.Meta
	meta.Complete = CompleteRecovered
	meta.admitMissing(rec)
	damaged, err = merge(rec, out, &meta)
	rec.Close() // Windows deletes no open file
	if err != nil || len(damaged) > 0 {
		return damaged, err
	}
	return nil, removeSegments(parent, filepath.Base(dir))
}

// admitMissing counts as lost every call that was seen and that no segment holds: the last
// metadata on disk may count calls of segments that never came there, and calls that were still
// on their way from the kernel.
func (m *Meta) admitMissing(rec *Recording) {
	var missing [numClasses]int64
	for name, c := range m.Calls {
		missing[classOfCalls(name)] += c.Recorded
	}
	for _, g := range rec.Groups() {
		missing[g.Class()] -= int64(g.NumRows())
	}
	m.Calls = maps.Clone(m.Calls)
	for _, name := range slices.Sorted(maps.Keys(m.Calls)) { // which calls of a class they were is not known
		c, of := m.Calls[name], &missing[classOfCalls(name)]
		n := max(0, min(*of, c.Recorded))
		c.Recorded -= n
		c.Lost += n
		c.Open, c.Abandoned = min(c.Open, c.Recorded), min(c.Abandoned, c.Recorded)
		*of -= n
		c.Lost = max(c.Lost, c.Seen-c.Recorded-c.Dropped)
		c.Seen = c.Recorded + c.Lost + c.Dropped // counted before the others
		m.Calls[name] = c
	}
}

// classOfCalls returns in which rows the calls are that Meta.Calls has by this name.
func classOfCalls(name string) Class {
	switch name {
	case ClassMemory.String():
		return ClassMemory
	case ClassAllocator.String():
		return ClassAllocator
	}
	return ClassCall
}

// merge writes all readable segments into a new file: the row groups of calls byte
// for byte, the small ones (facts, stacks, samples) joined into as few as possible.
func merge(rec *Recording, to *output.Destination, meta *Meta) (damaged []error, err error) {
	// In the folder of the final name: the segments may lie on a disk that is full.
	file, err := to.Create()
	if err != nil {
		return nil, fmt.Errorf("merge segments: %w", err)
	}
	out := parquet.NewGenericWriter[Row](file, writerOptions()...)
	for class := range numClasses {
		if err := mergeClass(out, rec, class); err != nil {
			file.Discard()
			return nil, fmt.Errorf("merge segments: %w", err)
		}
	}
	meta.Cost.FileBytes = rec.Size()
	if err := errors.Join(closeParquet(out, meta), file.Sync()); err != nil {
		file.Discard()
		return nil, fmt.Errorf("merge segments: %w", err)
	}
	if err := file.Commit(); err != nil {
		return nil, fmt.Errorf("merge segments: %w", err)
	}
	return rec.Damaged, nil
}

func mergeClass(out *parquet.GenericWriter[Row], rec *Recording, class Class) error {
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
			if !errors.Is(err, parquet.ErrRowGroupSchemaMismatch) { // an older version's segment is written anew
				return err
			}
		}
		if err := copyRows(out, g, rows); err != nil {
			return err
		}
	}
	return out.Flush()
}

func copyRows(out *parquet.GenericWriter[Row], g *Group, rows []Row) error {
	in := parquet.NewGenericRowGroupReader[Row](g.rows)
	defer in.Close()
	for {
		n, err := in.Read(rows)
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

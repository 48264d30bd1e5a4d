package analyzetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// RecordingPiece is a piece of a recording that grows.
type RecordingPiece struct {
	Rec *format.Recording // it is closed when the test ends
	// LimitNs is the earliest time of a row of all later pieces, Unix ns; math.MaxInt64: there is none.
	LimitNs int64
}

// SplitRecording splits a recording into at most n pieces by the time at which a recorder writes its rows: a call when
// it returns, an open call at the end, a stack before the first row with it, and a fact at its time. The pieces have
// about the same number of rows, and rows of the same time are in one piece.
func SplitRecording(t testing.TB, rec *format.Recording, n int) []RecordingPiece {
	t.Helper()
	rows := readWrittenRows(t, rec)
	slices.SortStableFunc(rows, func(a, b writtenRow) int { return cmp.Compare(a.writtenNs, b.writtenNs) })
	folder := t.TempDir()
	var pieces []RecordingPiece
	for from := 0; from < len(rows); {
		to := min(len(rows), from+(len(rows)+n-1)/n)
		for to < len(rows) && rows[to].writtenNs == rows[to-1].writtenNs {
			to++
		}
		meta := rec.Meta
		if to < len(rows) {
			meta.EndNs = rows[to-1].writtenNs
		}
		path := filepath.Join(folder, fmt.Sprintf("piece-%d.parquet", len(pieces)))
		pieces = append(pieces, RecordingPiece{writePiece(t, path, rows[from:to], meta), earliestNs(rows[to:])})
		from = to
	}
	return pieces
}

// earliestNs returns the earliest time of rows, Unix ns, or math.MaxInt64.
func earliestNs(rows []writtenRow) int64 {
	ns := int64(math.MaxInt64)
	for i := range rows {
		ns = min(ns, rows[i].firstNs)
	}
	return ns
}

// writtenRow is a row, and the time at which a recorder writes it, Unix ns. No effect of it is before firstNs.
type writtenRow struct {
	class              format.Class
	row                format.Row
	progress           format.ProgressRow
	writtenNs, firstNs int64
}

// readWrittenRows reads all rows of a recording.
func readWrittenRows(t testing.TB, rec *format.Recording) (rows []writtenRow) {
	t.Helper()
	stacks := make(map[int32]int64) // by stack: when its first row is written
	for class, list := range readAllRows(t, rec) {
		for i := range list {
			w := newWrittenRow(class, list[i])
			if first, ok := stacks[w.row.StackID]; class != format.ClassStack && (!ok || w.writtenNs < first) {
				stacks[w.row.StackID] = w.writtenNs
			}
			rows = append(rows, w)
		}
	}
	slices.SortStableFunc(rows, func(a, b writtenRow) int { return cmp.Compare(a.class, b.class) })
	for i := range rows {
		if w := &rows[i]; w.class == format.ClassStack {
			w.writtenNs = stacks[w.row.StackID]
		}
	}
	for _, g := range rec.Groups() {
		if g.Class() == format.ClassProgress {
			rows = append(rows, readProgressRows(g)...)
		}
		if err := g.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return rows
}

func newWrittenRow(class format.Class, r format.Row) writtenRow {
	w := writtenRow{class: class, row: r, writtenNs: r.StartNs, firstNs: r.StartNs}
	switch {
	case class == format.ClassStack:
		w.firstNs = math.MaxInt64
	case class == format.ClassFact:
		var fact struct {
			ExitNs int64 `json:"exit_ns"`
		}
		if json.Unmarshal([]byte(r.Message), &fact) == nil && fact.ExitNs > 0 {
			w.writtenNs, w.firstNs = fact.ExitNs, fact.ExitNs
		}
	case r.Flags&(format.FlagOpen|format.FlagAbandoned) != 0:
		w.writtenNs = math.MaxInt64
	default:
		w.writtenNs = units.EndOfRange(r.StartNs, r.DurNs)
	}
	return w
}

func readProgressRows(g *format.Group) (rows []writtenRow) {
	seen, times, counters := g.Int64("start_ns", nil), g.Int64("gpu_time_ns", nil), g.Int64("counter", nil)
	pids, channels := g.Int32("pid", nil), g.Int32("channel", nil)
	for i, ns := range seen {
		p := format.ProgressRow{
			SeenNs: ns, GPUTimeNs: times[i], Counter: counters[i], Pid: pids[i], Channel: channels[i],
		}
		rows = append(rows, writtenRow{class: format.ClassProgress, progress: p, writtenNs: ns, firstNs: ns})
	}
	return rows
}

// writePiece writes rows to a folder of segments, as a recorder leaves them, and opens it.
func writePiece(t testing.TB, path string, rows []writtenRow, meta format.Meta) *format.Recording {
	t.Helper()
	w, err := format.Create(path, format.Options{})
	if err != nil {
		t.Fatal(err)
	}
	byClass := make(map[format.Class][]format.Row)
	var progress []format.ProgressRow
	for i := range rows {
		if r := &rows[i]; r.class == format.ClassProgress {
			progress = append(progress, r.progress)
		} else {
			byClass[r.class] = append(byClass[r.class], r.row)
		}
	}
	for class, list := range byClass {
		if err := w.Write(class, list); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteProgress(progress); err != nil {
		t.Fatal(err)
	}
	if err := w.Rotate(meta); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return OpenRecording(t, w.Dir())
}

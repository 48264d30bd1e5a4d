//go:build linux

package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// watchedReadings are four readings of two devices. Device 1 is empty until the last one.
func watchedReadings() [][]record.TorchReading {
	first, second, third := ordinaryState(), ordinaryState(), ordinaryState()
	block := &second.Segments[1].Blocks[1]
	block.Use, block.Requested = allocated, 8*mib // new
	second.Segments[3].Blocks[0].Use, second.Segments[3].Blocks[0].Requested = cached, 0
	third.Segments[0].Blocks[0].Requested = 5 // the same place, another request
	at := func(n int, state *torchallocator.State) record.TorchReading {
		return record.TorchReading{Device: state.Device, UnixNs: readAt + int64(n)*1e9, State: state}
	}
	refused := hung(ordinaryState())
	refused.UnixNs = readAt + 2e9
	return [][]record.TorchReading{
		{at(0, first), at(0, newState(1))},
		{at(1, second), at(1, newState(1))},
		{refused, at(2, newState(1))},
		{at(3, third), at(3, newState(1, segment(0, false, part{20 * mib, 20 * mib, allocated})))},
		{at(4, third), at(4, newState(1))},
	}
}

func TestWatch(t *testing.T) {
	testclass.Unit(t)
	defer func(before *time.Location) { time.Local = before }(time.Local)
	time.Local = time.UTC
	for name, asJSON := range map[string]bool{"watch.txt": false, "watch.json": true} {
		var out bytes.Buffer
		w := NewWatch(&out, 4242, asJSON)
		if err := w.Refuse(errors.New("not used\x1b yet"), time.Unix(0, readAt-1e9)); err != nil {
			t.Fatal(err)
		}
		for _, list := range watchedReadings() {
			if err := w.Print(list); err != nil {
				t.Fatal(err)
			}
		}
		analyzetest.CompareGolden(t, name, out.Bytes())
	}
}

// TestWatchCountsBlocks checks that the blocks of a line are those of the line before, with new and without gone ones.
func TestWatchCountsBlocks(t *testing.T) {
	testclass.Unit(t)
	var out bytes.Buffer
	w := NewWatch(&out, 1, true)
	for _, list := range watchedReadings() {
		if err := w.Print(list); err != nil {
			t.Fatal(err)
		}
	}
	before, lines := map[int]int64{}, json.NewDecoder(&out)
	for lines.More() {
		var l struct {
			Device                                  int
			Refused                                 string
			Blocks, NewBlocks, GoneBlocks, NewBytes int64
		}
		var keys map[string]any
		var raw json.RawMessage
		if err := errors.Join(lines.Decode(&raw), json.Unmarshal(raw, &l), json.Unmarshal(raw, &keys)); err != nil {
			t.Fatal(err)
		}
		if l.Refused != "" {
			continue
		}
		news, hasChanges := keys["new_blocks"].(float64)
		gone, _ := keys["gone_blocks"].(float64)
		if last, ok := before[l.Device]; ok != hasChanges || ok && last+int64(news)-int64(gone) != l.Blocks {
			t.Errorf("%s follows %d blocks", raw, last)
		}
		before[l.Device] = l.Blocks
	}
	if len(before) != 2 {
		t.Errorf("lines of %d devices", len(before))
	}
}

// failingWriter fails after some bytes, as a pipe that closes.
type failingWriter struct{ left int }

var errClosed = errors.New("closed")

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errClosed
	}
	return len(p), nil
}

func TestWritersReturnErrors(t *testing.T) {
	testclass.Unit(t)
	list := watchedReadings()[0]
	devices := []Device{NewDevice(&list[0], 0)}
	for _, asJSON := range []bool{false, true} {
		for bytes := range 150 {
			if err := NewWatch(&failingWriter{bytes}, 1, asJSON).Print(list); !errors.Is(err, errClosed) {
				t.Fatalf("a line after %d bytes: %v", bytes, err)
			}
		}
	}
	if err := WriteText(&failingWriter{9}, Process{}, devices, 0); !errors.Is(err, errClosed) {
		t.Errorf("text: %v", err)
	}
	if err := WriteJSON(&failingWriter{9}, Process{}, devices); !errors.Is(err, errClosed) {
		t.Errorf("JSON: %v", err)
	}
}

//go:build linux

package memory

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// Watch prints a line for each reading of a device, with the blocks that are new and gone since the last one. A block
// that was freed and allocated again at the same place with the same size counts as the same block.
type Watch struct {
	out     io.Writer
	asJSON  bool
	pid     int
	before  map[int]map[block]bool // by device: blocks in use
	started bool
}

// NewWatch returns a Watch of a process that writes lines of text, or of JSON.
func NewWatch(out io.Writer, pid int, asJSON bool) *Watch {
	return &Watch{out: out, asJSON: asJSON, pid: pid, before: make(map[int]map[block]bool)}
}

// block identifies a block in use.
type block struct{ address, bytes, requested uint64 }

// line is a reading in JSON. Sizes are in bytes.
type line struct {
	Pid     int     `json:"pid"`
	Device  *int    `json:"device,omitempty"` // nil: the process could not be read
	UnixNs  int64   `json:"read_unix_ns"`
	Refused string  `json:"refused,omitempty"`
	Holder  *Holder `json:"lock_holder,omitempty"`
	*lineTotals
	*changes

	reason string // Refused as text
}

// lineTotals are those members of Memory that lines have.
type lineTotals struct {
	AllocatedBytes int64 `json:"allocated_bytes"`
	ReservedBytes  int64 `json:"reserved_bytes"`
	FreeBytes      int64 `json:"free_bytes"`
	LargestFree    int64 `json:"largest_free_bytes"`
	LargestRequest int64 `json:"largest_request_bytes"`
	Blocks         int64 `json:"blocks"` // in use by the program or a stream
	ReadNs         int64 `json:"read_ns"`
	Tries          int   `json:"tries"`
	Calls          int   `json:"calls"`
	ReadBytes      int64 `json:"read_bytes"`
}

// changes are the blocks in use that are new or gone since the last reading of the device that was not refused.
type changes struct {
	NewBlocks  int64 `json:"new_blocks"`
	NewBytes   int64 `json:"new_bytes"`
	GoneBlocks int64 `json:"gone_blocks"`
	GoneBytes  int64 `json:"gone_bytes"`
}

// Print prints the readings of all devices. Text leaves out devices that have no memory, and had none before, unless all
// are such devices; their numbers are in the first line.
func (w *Watch) Print(readings []record.TorchReading) error {
	lines, devices := make([]line, len(readings)), make([]Device, len(readings))
	for i := range readings {
		devices[i] = NewDevice(&readings[i], 1)
		lines[i] = w.compare(&devices[i], readings[i].State)
	}
	if w.asJSON {
		return w.printJSON(lines)
	}
	if !w.started {
		if err := w.printHead(devices); err != nil {
			return err
		}
	}
	kept := slices.DeleteFunc(slices.Clone(lines), func(l line) bool { return l.isEmpty() })
	if len(kept) == 0 {
		kept = lines[:min(len(lines), 1)]
	}
	for i := range kept {
		if _, err := fmt.Fprintln(w.out, kept[i].String()); err != nil {
			return err
		}
	}
	return nil
}

// isEmpty reports whether the device has no memory, and had none before.
func (l *line) isEmpty() bool {
	return l.lineTotals != nil && l.ReservedBytes == 0 && l.Blocks == 0 && (l.changes == nil || l.GoneBlocks == 0)
}

// Refuse prints why the process could not be read.
func (w *Watch) Refuse(reason error, now time.Time) error {
	l := line{Pid: w.pid, UnixNs: now.UnixNano(), Refused: reason.Error(), reason: reason.Error()}
	if w.asJSON {
		return w.printJSON([]line{l})
	}
	if !w.started {
		if err := w.printHead(nil); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w.out, l.String())
	return err
}

func (w *Watch) printJSON(lines []line) error {
	enc := json.NewEncoder(w.out)
	enc.SetEscapeHTML(false)
	for i := range lines {
		if err := enc.Encode(&lines[i]); err != nil {
			return err
		}
	}
	return nil
}

// printHead prints the headings of the columns, and which devices have no memory.
func (w *Watch) printHead(devices []Device) error {
	w.started = true
	if text := describeEmpty(devices); text != "" {
		if _, err := fmt.Fprintln(w.out, text); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(
		w.out,
		lineFormat+"\n",
		"TIME",
		"DEVICE",
		"ALLOCATED",
		"RESERVED",
		"FREE",
		"LARGEST",
		"BLOCKS",
		"NEW",
		"BYTES",
		"GONE",
		"BYTES",
	)
	return err
}

// lineFormat has the columns of a line of text.
const lineFormat = "%-12s  %6s  %10s  %10s  %10s  %10s  %8s  %7s  %10s  %7s  %10s"

// compare returns the line of a device, and keeps its blocks.
func (w *Watch) compare(d *Device, state *torchallocator.State) line {
	l := line{
		Pid:     w.pid,
		Device:  &d.Device,
		UnixNs:  d.UnixNs,
		Refused: d.Refused,
		Holder:  d.Holder,
		reason:  describeRefusal(d),
	}
	if d.Refused != "" {
		return l
	}
	l.lineTotals = &lineTotals{
		AllocatedBytes: d.AllocatedBytes, ReservedBytes: d.ReservedBytes, FreeBytes: d.FreeBytes,
		LargestFree: d.LargestFree, LargestRequest: d.LargestRequest, Blocks: d.AllocatedBlocks + d.AwaitingBlocks,
		ReadNs: d.Proof.ReadNs, Tries: d.Proof.Tries, Calls: d.Proof.Calls, ReadBytes: d.Proof.ReadBytes,
	}
	now, before := blocksInUse(state), w.before[d.Device]
	w.before[d.Device] = now
	if before == nil {
		return l
	}
	l.changes = new(changes)
	for b := range now {
		if !before[b] {
			l.NewBlocks++
			l.NewBytes += toSigned(b.bytes)
		}
	}
	for b := range before {
		if !now[b] {
			l.GoneBlocks++
			l.GoneBytes += toSigned(b.bytes)
		}
	}
	return l
}

// blocksInUse returns the blocks that the program or a stream uses.
func blocksInUse(state *torchallocator.State) map[block]bool {
	blocks := make(map[block]bool)
	for i := range state.Segments {
		for _, b := range state.Segments[i].Blocks {
			if b.Use != torchallocator.Cached {
				blocks[block{b.Address, b.Bytes, b.Requested}] = true
			}
		}
	}
	return blocks
}

// String returns the line as text.
func (l *line) String() string {
	at := time.Unix(0, l.UnixNs).Format("15:04:05.000")
	device := "-"
	if l.Device != nil {
		device = fmt.Sprint(*l.Device)
	}
	if l.lineTotals == nil {
		return units.SanitizeText(fmt.Sprintf("%-12s  %6s  refused: %s", at, device, l.reason))
	}
	change := []any{"-", "-", "-", "-"}
	if l.changes != nil {
		change = []any{
			units.FormatCount(l.NewBlocks), units.FormatBytes(l.NewBytes), units.FormatCount(l.GoneBlocks),
			units.FormatBytes(l.GoneBytes),
		}
	}
	return fmt.Sprintf(lineFormat, append([]any{
		at, device, units.FormatBytes(l.AllocatedBytes), units.FormatBytes(l.ReservedBytes),
		units.FormatBytes(l.FreeBytes), units.FormatBytes(l.LargestFree), units.FormatCount(l.Blocks),
	}, change...)...)
}

//go:build linux

package memory

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// WriteText writes the memory of a process for people. Devices without memory share one line. It writes nothing if no
// device could be read. width is that of the
// terminal in characters, 0 for no limit.
func WriteText(out io.Writer, p Process, devices []Device, width int) error {
	w := &textWriter{options: render.Options{Width: width}}
	for i := range devices {
		if d := &devices[i]; (d.Memory != nil || d.Holder != nil) && !d.IsEmpty() {
			w.writeDevice(d, p.Pid)
		}
	}
	if text := describeEmpty(devices); text != "" {
		w.printf("\n%s\n", text)
	}
	if w.err != nil || w.text.Len() == 0 {
		return w.err
	}
	_, err := fmt.Fprintf(out, "%s\n%s", describeProcess(p), w.text.Bytes())
	return err
}

// describeProcess returns the name of a process, and its version of PyTorch.
func describeProcess(p Process) string {
	text := fmt.Sprintf("process %d (%s)", p.Pid, p.Comm)
	if p.Version != "" {
		text += ", PyTorch " + p.Version
	}
	return units.SanitizeText(text)
}

// describeEmpty returns a line about devices without memory, "" if there are none.
func describeEmpty(devices []Device) string {
	var empty []int
	for i := range devices {
		if devices[i].IsEmpty() {
			empty = append(empty, devices[i].Device)
		}
	}
	switch len(empty) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("device %d: nothing is reserved", empty[0])
	}
	return fmt.Sprintf("devices %s: nothing is reserved", units.FormatNumberSet(empty))
}

// textWriter collects text.
type textWriter struct {
	text    bytes.Buffer
	options render.Options
	err     error
}

func (w *textWriter) printf(format string, args ...any) { fmt.Fprintf(&w.text, format, args...) }

// writeTable writes a table below its title, if it has rows.
func (w *textWriter) writeTable(t *report.Table) {
	if len(t.Rows) == 0 {
		return
	}
	w.printf("\n%s\n", t.Title)
	if err := render.WriteTable(&w.text, t, w.options); err != nil && w.err == nil {
		w.err = err
	}
}

// writeDevice writes the memory of a device.
func (w *textWriter) writeDevice(d *Device, pid int) {
	w.printf("\ndevice %d\n", d.Device)
	w.writeDoubts(d, pid)
	if d.Memory == nil {
		return
	}
	for _, fact := range memoryFacts(d.Memory) {
		w.writeLine(fmt.Sprintf("%-*s", factPad, fact[0]), fact[1])
	}
	w.writeTable(poolTable(d.Memory))
	w.writeTable(sizeTable(d.Memory))
	if n := d.OtherSizes; n.Sizes > 0 {
		w.printf(
			"… and %s: %s, %s\n",
			units.CountWithNoun(n.Sizes, "more size"),
			units.CountWithNoun(n.Blocks, "block"),
			units.FormatBytes(n.Bytes),
		)
	}
	w.writeTable(sparseTable(d.Memory))
	if more := d.AllSparse.Segments - int64(len(d.Sparse)); more > 0 {
		w.printf("… and %s\n", units.CountWithNoun(more, "more segment"))
	}
	w.printf("\n")
	w.writeLine("", describeProof(&d.Proof))
}

// factPad is the width of the names of facts, with a distance.
const factPad = 18

// writeLine writes a text, wrapped below its start.
func (w *textWriter) writeLine(first, text string) {
	indent := strings.Repeat(" ", len(first))
	w.printf("%s", render.WrapText(units.SanitizeText(text), first, indent, w.options.Width))
}

// writeDoubts writes why the memory of a device is not proved, and what a thread does inside the allocator.
func (w *textWriter) writeDoubts(d *Device, pid int) {
	if d.Refused == "" {
		return
	}
	w.writeLine("", describeRefusal(d))
	if d.Memory != nil {
		w.writeLine("", "the blocks below are not proved: "+describeAgreement(&d.Proof))
	} else {
		w.writeLine("", "its blocks are unknown: the reading contradicts itself")
	}
	if d.Holder != nil {
		w.printf("next: sudo gpurec stacks -p %d\n", pid)
	}
	w.printf("\n")
}

// describeRefusal returns why the memory of a device is unknown or not proved.
func describeRefusal(d *Device) string {
	if d.Holder != nil {
		return "inside the allocator: " + describeHolder(d.Holder)
	}
	return d.Refused
}

// describeHolder names the thread that holds the lock, for how long, and where it waits.
func describeHolder(h *Holder) string {
	tid := h.Tid
	if tid == 0 {
		tid = h.NamespaceTid
	}
	text := fmt.Sprintf("thread %d", tid)
	if h.Name != "" {
		text += " (" + h.Name + ")"
	}
	text += " holds its lock, for at least " + units.FormatDuration(h.HeldNs)
	switch {
	case h.SystemCall != "" && h.WaitPlace != "":
		text += fmt.Sprintf(", and waits in %s (%s in the kernel)", h.SystemCall, h.WaitPlace)
	case h.SystemCall != "":
		text += ", and waits in " + h.SystemCall
	case h.WaitPlace != "":
		text += fmt.Sprintf(", and waits in the kernel, in %s", h.WaitPlace)
	}
	return text
}

// memoryFacts returns the totals of a device: names and texts.
func memoryFacts(m *Memory) [][2]string {
	facts := [][2]string{{"allocated", units.FormatBytes(m.AllocatedBytes) + " in " +
		units.CountWithNoun(m.AllocatedBlocks, "block")}}
	if m.AwaitingBlocks > 0 {
		facts = append(facts, [2]string{"awaiting streams", units.FormatBytes(m.AwaitingBytes) + " in " +
			units.CountWithNoun(m.AwaitingBlocks, "block") + " that the program freed"})
	}
	facts = append(
		facts,
		[2]string{"reserved", units.FormatBytes(m.ReservedBytes) + " in " + describeSegments(m)},
		[2]string{"free", describeFree(m)},
		[2]string{"largest request", describeLargestRequest(m)},
	)
	if m.LimitBytes > 0 {
		facts = append(facts, [2]string{"limit", fmt.Sprintf("%s reserved, set by the program; %s left",
			units.FormatBytes(m.LimitBytes), units.FormatBytes(max(0, m.LimitBytes-m.ReservedBytes)))})
	}
	return facts
}

// describeSegments returns the number of segments and of mapped ranges.
func describeSegments(m *Memory) string {
	ranges := units.CountWithNoun(m.MappedRanges, "mapped range") + " of expandable segments"
	switch {
	case m.MappedRanges == 0:
		return units.CountWithNoun(m.Segments, "segment")
	case m.Segments == 0:
		return ranges
	}
	return units.CountWithNoun(m.Segments, "segment") + " and " + ranges
}

func describeFree(m *Memory) string {
	text := fmt.Sprintf("%s in %s inside segments", units.FormatBytes(m.FreeBytes),
		units.CountWithNoun(m.FreePieces, "piece"))
	if m.FreePieces > 0 {
		text += ", the largest of " + units.FormatBytes(m.LargestFree)
	}
	if m.UnusedSegments > 0 {
		text += fmt.Sprintf(
			"; %s of it in %s without blocks, which empty_cache() releases",
			units.FormatBytes(m.UnusedSegmentBytes),
			units.CountWithNoun(m.UnusedSegments, "segment"),
		)
	}
	return text
}

func describeLargestRequest(m *Memory) string {
	if m.LargestRequest == 0 {
		return "none fits into the default pool without a new segment"
	}
	return fmt.Sprintf("%s fits into the default pool without a new segment, on stream %s",
		units.FormatBytes(m.LargestRequest), m.LargestRequestStream)
}

// poolTable returns the table of pools.
func poolTable(m *Memory) *report.Table {
	t := &report.Table{Title: "pools and streams", Columns: []report.Column{
		{Key: "pool", Title: "POOL"},
		{Key: "segments_of", Title: "SEGMENTS OF"},
		{Key: "stream", Title: "STREAM"},
		{Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount},
		{Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes},
		{Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes},
		{Key: "awaiting_bytes", Title: "AWAITING", Unit: report.UnitBytes},
		{Key: "free_bytes", Title: "CACHED", Unit: report.UnitBytes},
		{Key: "largest_free_bytes", Title: "LARGEST", Unit: report.UnitBytes},
		{Key: "blocks", Title: "BLOCKS", Unit: report.UnitCount},
	}, HideFirst: []string{"segments", "blocks", "awaiting_bytes"}}
	for _, p := range m.Pools {
		t.Rows = append(t.Rows, report.Row{Cells: []any{
			p.Pool, p.SegmentsOf, p.Stream, p.Segments, p.ReservedBytes, p.AllocatedBytes, p.AwaitingBytes, p.FreeBytes,
			p.LargestFree, p.Blocks,
		}})
	}
	return t
}

// sizeTable returns the table of sizes of blocks.
func sizeTable(m *Memory) *report.Table {
	t := &report.Table{Title: "blocks in use by requested size", Columns: []report.Column{
		{Key: "requested_bytes", Title: "REQUESTED", Unit: report.UnitBytes},
		{Key: "exact_bytes", Title: "EXACT BYTES", Unit: report.UnitCount},
		{Key: "blocks", Title: "BLOCKS", Unit: report.UnitCount},
		{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes},
		{Key: "share", Title: "SHARE%", Unit: report.UnitPercent},
	}}
	var all int64
	for _, p := range m.Pools {
		all += p.AllocatedBytes + p.AwaitingBytes
	}
	for _, s := range m.Sizes {
		t.Rows = append(t.Rows, report.Row{Cells: []any{
			s.RequestedBytes, s.RequestedBytes, s.Blocks, s.Bytes, units.Percent(s.Bytes, all),
		}})
	}
	return t
}

// sparseTable returns the table of segments that few bytes keep.
func sparseTable(m *Memory) *report.Table {
	t := &report.Table{
		Title: fmt.Sprintf("segments that few bytes keep, less than 25%% used: %s, with %s free",
			units.FormatCount(m.AllSparse.Segments), units.FormatBytes(m.AllSparse.FreeBytes)),
		Columns: []report.Column{
			{Key: "bytes", Title: "SEGMENT", Unit: report.UnitBytes},
			{Key: "used_bytes", Title: "USED", Unit: report.UnitBytes},
			{Key: "used_pct", Title: "USED%", Unit: report.UnitPercent},
			{Key: "blocks", Title: "BLOCKS", Unit: report.UnitCount},
			{Key: "pool", Title: "POOL"},
			{Key: "stream", Title: "STREAM"},
			{Key: "address", Title: "ADDRESS"},
		},
	}
	for _, s := range m.Sparse {
		t.Rows = append(t.Rows, report.Row{Cells: []any{
			s.Bytes, s.UsedBytes, units.Percent(s.UsedBytes, s.Bytes), s.Blocks, s.Pool, s.Stream, s.Address,
		}})
	}
	return t
}

// describeProof returns how many totals agree, and what the reading took if it is proved.
func describeProof(p *Proof) string {
	text := describeAgreement(p)
	if p.Calls > 0 {
		text += fmt.Sprintf("; read in %s, %s, %s", units.FormatDuration(p.ReadNs),
			units.CountWithNoun(int64(p.Calls), "call"), units.FormatBytes(p.ReadBytes))
	}
	if p.Layout == "" {
		return text + "; the layout was found by a search"
	}
	return text + "; PyTorch's layout " + p.Layout
}

func describeAgreement(p *Proof) string {
	return fmt.Sprintf("%d of %d totals agree", p.TotalsAgree, p.Totals)
}

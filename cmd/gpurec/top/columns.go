package top

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/units"
)

// column is a column of the table of processes.
type column struct {
	title string
	width int // with room for the mark of the column by which the table is sorted
	// minWidth is the width of the terminal from which on the column is shown.
	minWidth int
	left     bool // aligned to the left
	text     func(s *live.Snapshot, p *live.Process) string
	// compare orders processes by the column, those first that need attention.
	compare func(a, b *live.Process) int
}

// unknown is shown for a value that is unknown or not recorded.
const unknown = "-"

var columns = []column{
	{
		title: "PID", width: 7,
		text:    func(_ *live.Snapshot, p *live.Process) string { return strconv.Itoa(int(p.Pid)) },
		compare: func(a, b *live.Process) int { return cmp.Compare(a.Pid, b.Pid) },
	},
	{
		title: "RANK", width: 5,
		text: func(_ *live.Snapshot, p *live.Process) string {
			if p.Rank == nil {
				return unknown
			}
			return strconv.Itoa(*p.Rank)
		},
		compare: func(a, b *live.Process) int { return cmp.Compare(rankOf(a), rankOf(b)) },
	},
	{
		title: "LAUNCH/S", width: 9,
		text: func(s *live.Snapshot, p *live.Process) string {
			if s.LaunchShare < 1 {
				return "~" + formatRate(p.LaunchesPerSec)
			}
			return formatRate(p.LaunchesPerSec)
		},
		compare: func(a, b *live.Process) int { return cmp.Compare(b.LaunchesPerSec, a.LaunchesPerSec) },
	},
	{
		title: "CALLS/S", width: 8,
		text:    func(_ *live.Snapshot, p *live.Process) string { return formatRate(p.CallsPerSec) },
		compare: func(a, b *live.Process) int { return cmp.Compare(b.CallsPerSec, a.CallsPerSec) },
	},
	{
		title: "WAIT%", width: 6,
		text:    func(_ *live.Snapshot, p *live.Process) string { return fmt.Sprintf("%.0f", p.WaitPercent) },
		compare: func(a, b *live.Process) int { return cmp.Compare(b.WaitPercent, a.WaitPercent) },
	},
	{
		title: "LIVE", width: 9,
		text:    func(_ *live.Snapshot, p *live.Process) string { return units.FormatBytes(p.LiveBytes) },
		compare: func(a, b *live.Process) int { return cmp.Compare(b.LiveBytes, a.LiveBytes) },
	},
	{
		title: "ALLOCATED", width: 10,
		text: func(_ *live.Snapshot, p *live.Process) string {
			if p.Allocator == nil {
				return unknown
			}
			return units.FormatBytes(p.Allocator.AllocatedBytes)
		},
		compare: func(a, b *live.Process) int { return cmp.Compare(allocatedOf(b), allocatedOf(a)) },
	},
	{
		title: "RESERVED", width: 9, minWidth: 90,
		text: func(_ *live.Snapshot, p *live.Process) string {
			if p.Allocator == nil {
				return unknown
			}
			return units.FormatBytes(p.Allocator.ReservedBytes)
		},
	},
	{
		title: "USED", width: 9, minWidth: 100,
		text: func(_ *live.Snapshot, p *live.Process) string {
			if p.UsedBytes < 0 {
				return unknown
			}
			return units.FormatBytes(p.UsedBytes)
		},
		compare: func(a, b *live.Process) int { return cmp.Compare(b.UsedBytes, a.UsedBytes) },
	},
	{
		title: "FAILED", width: 7,
		text:    func(_ *live.Snapshot, p *live.Process) string { return units.FormatCount(p.Failed) },
		compare: func(a, b *live.Process) int { return cmp.Compare(b.Failed, a.Failed) },
	},
	{
		title: "PROCESS", width: 15, left: true,
		text:    func(_ *live.Snapshot, p *live.Process) string { return units.SanitizeText(p.Name) + stateOf(p) },
		compare: func(a, b *live.Process) int { return cmp.Compare(a.Name, b.Name) },
	},
}

// silentFromNs is the time without a call from which on a process is shown as silent.
const silentFromNs = int64(5 * time.Second)

// stateOf returns the state of a process that makes no calls.
func stateOf(p *live.Process) string {
	switch {
	case p.Exited:
		return " (exited)"
	case p.SilentNs >= silentFromNs:
		return fmt.Sprintf(" (silent %v)", time.Duration(p.SilentNs).Truncate(time.Second))
	}
	return ""
}

func rankOf(p *live.Process) int {
	if p.Rank == nil {
		return -1
	}
	return *p.Rank
}

func allocatedOf(p *live.Process) int64 {
	if p.Allocator == nil {
		return -1
	}
	return p.Allocator.AllocatedBytes
}

// formatRate formats a number per second in at most six characters.
func formatRate(perSec float64) string {
	switch {
	case perSec >= 1e6:
		return fmt.Sprintf("%.1fM", perSec/1e6)
	case perSec >= 1e4:
		return fmt.Sprintf("%.1fk", perSec/1e3)
	}
	return fmt.Sprintf("%.0f", perSec)
}

// pad pads or cuts a text to the width of the column.
func (c *column) pad(text string, isLast bool) string {
	if isLast {
		return text
	}
	text = units.ShortenText(text, c.width)
	space := strings.Repeat(" ", max(0, c.width-len([]rune(text))))
	if c.left {
		return text + space
	}
	return space + text
}

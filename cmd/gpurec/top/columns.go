package top

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/live"
	"github.com/gpurec/gpurec/analyze/units"
)

// column is a column of the table of processes.
type column struct {
	title string
	width int
	left  bool // aligned to the left
	// needsRecorder is set if only a recorded process has the number.
	needsRecorder bool
	text          func(s *live.Snapshot, p *live.Process) string
	// number is the number by which processes are sorted, -1 if it is unknown. nil: they are sorted by name.
	number func(p *live.Process) float64
	rising bool // the smallest number comes first
	// steady is set if the number seldom changes, so that the order follows it at once.
	steady bool
	help   string
}

// unknown is shown for a value that is unknown or not recorded.
const unknown = "-"

// minNameWidth is the least width of the last column.
const minNameWidth = 16

var columns = []column{
	{
		title: "PID", width: 7, rising: true, steady: true, help: "process",
		text:   func(_ *live.Snapshot, p *live.Process) string { return strconv.Itoa(int(p.Pid)) },
		number: func(p *live.Process) float64 { return float64(p.Pid) },
	},
	{
		title: "RANK", width: 4, rising: true, steady: true, help: "rank in its job",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatKnown(rankOf(p), "%.0f") },
		number: rankOf,
	},
	{
		title: "GPU", width: 4, rising: true, steady: true, help: "GPUs that it uses, by NVML index",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatGPUs(p.GPUs) },
		number: firstGPU,
	},
	{
		title: "LAUNCH/S", width: 8, needsRecorder: true,
		help: "kernel and graph launches a second; ~ marks an estimate (--max-overhead)",
		text: func(s *live.Snapshot, p *live.Process) string {
			if s.LaunchShare < 1 {
				return "~" + formatRate(p.LaunchesPerSec)
			}
			return formatRate(p.LaunchesPerSec)
		},
		number: func(p *live.Process) float64 { return p.LaunchesPerSec },
	},
	{
		title: "CALLS/S", width: 7, needsRecorder: true, help: "recorded CUDA calls a second",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatRate(p.CallsPerSec) },
		number: func(p *live.Process) float64 { return p.CallsPerSec },
	},
	{
		title: "WAIT%", width: 5, needsRecorder: true,
		help:   "time in calls that wait for the GPU, summed over threads",
		text:   func(_ *live.Snapshot, p *live.Process) string { return fmt.Sprintf("%.0f", p.WaitPercent) },
		number: func(p *live.Process) float64 { return p.WaitPercent },
	},
	{
		title: "SM%", width: 4, help: "time in which a kernel of the process ran (NVML)",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatKnown(p.SMPercent, "%.0f") },
		number: func(p *live.Process) float64 { return p.SMPercent },
	},
	{
		title: "CPU%", width: 5, help: "CPU time, in percent of one processor",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatKnown(p.CPUPercent, "%.0f") },
		number: func(p *live.Process) float64 { return p.CPUPercent },
	},
	{
		title: "LIVE", width: 5, needsRecorder: true, help: "memory on GPUs that was allocated since top began",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatSize(p.LiveBytes) },
		number: func(p *live.Process) float64 { return float64(p.LiveBytes) },
	},
	{
		title: "ALLOC", width: 5, needsRecorder: true, help: "bytes that PyTorch's allocator has allocated",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatSize(allocatorOf(p).AllocatedBytes) },
		number: func(p *live.Process) float64 { return float64(allocatorOf(p).AllocatedBytes) },
	},
	{
		title: "RESV", width: 5, needsRecorder: true, help: "bytes that PyTorch's allocator has reserved",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatSize(allocatorOf(p).ReservedBytes) },
		number: func(p *live.Process) float64 { return float64(allocatorOf(p).ReservedBytes) },
	},
	{
		title: "USED", width: 5, help: "all memory on GPUs (NVML)",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatSize(p.UsedBytes) },
		number: func(p *live.Process) float64 { return float64(p.UsedBytes) },
	},
	{
		title: "COPY/S", width: 6, needsRecorder: true, help: "bytes copied a second",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatSize(int64(p.CopiedBytesPerSec)) },
		number: func(p *live.Process) float64 { return p.CopiedBytesPerSec },
	},
	{
		title: "ERR", width: 4, needsRecorder: true, steady: true, help: "failed calls since top began",
		text:   func(_ *live.Snapshot, p *live.Process) string { return formatCount(p.Failed) },
		number: func(p *live.Process) float64 { return float64(p.Failed) },
	},
	{
		title: "NAME", width: minNameWidth, left: true, help: "name, and the state of a process that does nothing",
		text: func(_ *live.Snapshot, p *live.Process) string { return formatName(p, minNameWidth) },
	},
}

// formatName returns the name and the state of a process. The name is cut before the state.
func formatName(p *live.Process, width int) string {
	state := stateOf(p)
	return units.ShortenText(units.SanitizeText(p.Name), max(1, width-len(state))) + state
}

// shownFirst are the columns in the order in which they get room. Of processes that are not recorded, the columns that
// are known come first.
var (
	shownFirst = []string{
		"PID", "NAME", "LAUNCH/S", "WAIT%", "LIVE", "RANK", "GPU", "ALLOC", "ERR", "USED", "RESV", "SM%", "CPU%",
		"CALLS/S", "COPY/S",
	}
	shownFirstUnrecorded = []string{
		"PID", "NAME", "USED", "SM%", "CPU%", "RANK", "GPU", "LAUNCH/S", "WAIT%", "LIVE", "ALLOC", "ERR", "RESV",
		"CALLS/S", "COPY/S",
	}
)

// defaultSort is the title of the column by which a new table is sorted.
func defaultSort(s *live.Snapshot) string {
	if s.NotRecorded != "" {
		return "USED"
	}
	return "LAUNCH/S"
}

// columnOf returns the index of a column.
func columnOf(title string) int {
	return slices.IndexFunc(columns, func(c column) bool { return c.title == title })
}

// shownColumns returns the indexes of the columns that fit into a width, and the width of the last one.
func shownColumns(s *live.Snapshot, width int) (shown []int, lastWidth int) {
	first := shownFirst
	if s.NotRecorded != "" {
		first = shownFirstUnrecorded
	}
	for _, title := range first {
		c := columnOf(title)
		if need := columns[c].width + 1; need <= width {
			shown, width = append(shown, c), width-need
			continue
		}
		break
	}
	slices.Sort(shown)
	return shown, minNameWidth + width
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

func rankOf(p *live.Process) float64 {
	if p.Rank == nil {
		return -1
	}
	return float64(*p.Rank)
}

func firstGPU(p *live.Process) float64 {
	if len(p.GPUs) == 0 {
		return -1
	}
	return float64(p.GPUs[0])
}

// allocatorOf returns the totals of PyTorch's allocator, -1 if they are unknown.
func allocatorOf(p *live.Process) live.Allocator {
	if p.Allocator == nil {
		return live.Allocator{AllocatedBytes: -1, ReservedBytes: -1}
	}
	return *p.Allocator
}

// formatGPUs formats the indexes of GPUs: 0, or 0-7.
func formatGPUs(gpus []int32) string {
	list := make([]int, 0, len(gpus))
	for _, g := range gpus {
		list = append(list, int(g))
	}
	if len(list) == 0 {
		return unknown
	}
	return units.FormatNumberSet(list)
}

// formatKnown formats a number, and one below 0 as unknown.
func formatKnown(value float64, format string) string {
	if value < 0 {
		return unknown
	}
	return fmt.Sprintf(format, value)
}

// formatSize formats bytes in at most five characters: 512B, 1.5M, 30.7G, 1023M. K, M, G and T are KiB to TiB.
func formatSize(bytes int64) string {
	if bytes < 0 {
		return unknown
	}
	if bytes < 1024 {
		return fmt.Sprintf("%dB", bytes)
	}
	value, unit := float64(bytes), 0
	for value >= 1023.5 && unit < 4 {
		value, unit = value/1024, unit+1
	}
	if value < 99.95 {
		return fmt.Sprintf("%.1f%c", value, "BKMGT"[unit])
	}
	return fmt.Sprintf("%.0f%c", value, "BKMGT"[unit])
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

// formatCount formats a number in at most four characters, if it is below 1e9.
func formatCount(n int64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%dM", n/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%dk", n/1e3)
	}
	return strconv.FormatInt(n, 10)
}

// pad pads or cuts a text to a width.
func pad(text string, width int, left bool) string {
	text = units.ShortenText(text, width)
	space := strings.Repeat(" ", max(0, width-len([]rune(text))))
	if left {
		return text + space
	}
	return space + text
}

package query

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Filter selects the rows of a report. The zero value selects all rows. A non-empty list must
// contain the call's value.
type Filter struct {
	// FromNs and ToNs bound the time, Unix ns. 0 means the bound of the recording.
	FromNs, ToNs int64
	Pids, Tids   []int32 // process ids and thread ids
	Devices      []int32 // CUDA device ordinals
	Streams      []int64 // stream handles; 0 is the default stream
	// MinBytes excludes allocations and copies smaller than this.
	MinBytes int64
	// Kernel, if not nil, excludes launches of kernels whose name does not match.
	Kernel *regexp.Regexp

	Choice *ProcessChoice // set by timeline.Restrict; nil without selection by rank, job or container
}

// ProcessChoice is the selection of processes that narrowed a Filter.
type ProcessChoice struct {
	Pids []int32 // the filter's Pids before the selection
	// NoMatchError returns the first condition that none of these processes fulfils, or nil.
	NoMatch func(pids map[int32]bool) *NoMatchError
}

// NoMatchError is the error that no row passed the filter. It names the condition that matched
// nothing.
type NoMatchError struct {
	// Filter is the condition (pid, tid, device, stream, rank, job, container). It is "" if each
	// condition matches some row, but no row matches all.
	Filter string
	// Wanted are the values in the filter, Has the values in the recording.
	Wanted, Has []string
}

// Error returns the message for the user.
func (n *NoMatchError) Error() string {
	if n.Filter == "" {
		return "no row matches all filters; use fewer filters"
	}
	has := strings.Join(n.Has, ", ")
	if has == "" {
		has = "none"
	}
	return fmt.Sprintf("no row matches --%s %s; the recording has %s %s",
		n.Filter, strings.Join(n.Wanted, ","), units.PluralOf(n.Filter), has)
}

// NarrowWindow returns the part of the recording's window that the filter selects.
func (f *Filter) NarrowWindow(w Window) Window {
	if f.FromNs != 0 {
		w.FromNs = f.FromNs
	}
	if f.ToNs != 0 {
		w.ToNs = f.ToNs
	}
	return w
}

// SelectsCallers reports whether the filter selects by process, thread, device or stream.
func (f *Filter) SelectsCallers() bool {
	return len(f.Pids)+len(f.Tids)+len(f.Devices)+len(f.Streams) > 0
}

// PassesCaller reports whether calls of this process, thread, device and stream pass the filter.
func (f *Filter) PassesCaller(pid, tid, device int32, stream int64) bool {
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) &&
		(len(f.Tids) == 0 || slices.Contains(f.Tids, tid)) &&
		(len(f.Devices) == 0 || slices.Contains(f.Devices, device)) &&
		(len(f.Streams) == 0 || slices.Contains(f.Streams, stream))
}

// hasRequestedSize reports whether the bytes of such calls are a requested amount.
func hasRequestedSize(kind string) bool {
	return kind == format.KindAlloc || kind == format.KindMemcpy || kind == format.KindMemset
}

// PassesKernel reports whether a call of this kind and kernel passes the filter. Calls other than
// launches always pass.
func (f *Filter) PassesKernel(kind, kernel string) bool {
	return f.Kernel == nil || kind != format.KindLaunch || f.Kernel.MatchString(kernel)
}

// PassesSize reports whether a call of this kind and size passes the filter.
func (f *Filter) PassesSize(kind string, bytes int64) bool {
	return f.MinBytes == 0 || !hasRequestedSize(kind) || bytes >= f.MinBytes
}

// SeenCallers collects the processes, threads, devices and streams of the calls that a report read.
// It explains a filter that matches nothing.
type SeenCallers struct {
	Pids, tids, devices map[int32]bool
	streams             map[int64]bool
}

// NewSeenCallers returns an empty Callers.
func NewSeenCallers() *SeenCallers {
	return &SeenCallers{make(map[int32]bool), make(map[int32]bool), make(map[int32]bool), make(map[int64]bool)}
}

// AddCaller records the process, thread, device and stream of a call.
func (c *SeenCallers) AddCaller(pid, tid, device int32, stream int64) {
	c.Pids[pid], c.devices[device], c.streams[stream] = true, true, true
	if tid != 0 { // the thread that allocated memory from before the recording is unknown
		c.tids[tid] = true
	}
}

// ExplainNoMatch returns the first condition of the filter that no call fulfils.
func (c *SeenCallers) ExplainNoMatch(f *Filter) *NoMatchError {
	return FirstNoMatchError(
		f.ExplainNoProcess(c.Pids),
		NewNoMatchError("tid", f.Tids, c.tids, FormatPid),
		NewNoMatchError("device", f.Devices, c.devices, FormatPid),
		NewNoMatchError("stream", f.Streams, c.streams, StreamName),
	)
}

// ExplainNoProcess returns the condition on processes that none of pids fulfils. It returns nil if
// there is none.
func (f *Filter) ExplainNoProcess(pids map[int32]bool) *NoMatchError {
	if f.Choice != nil {
		return f.Choice.NoMatch(pids)
	}
	return NewNoMatchError("pid", f.Pids, pids, FormatPid)
}

// FirstNoMatchError returns the first non-nil candidate. Without one it returns a NoMatchError for
// the combination of all conditions.
func FirstNoMatchError(candidates ...*NoMatchError) *NoMatchError {
	for _, n := range candidates {
		if n != nil {
			return n
		}
	}
	return &NoMatchError{}
}

// NewNoMatchError returns a NoMatchError if none of the wanted values is in has, otherwise nil.
// name is the condition, and text formats a value.
func NewNoMatchError[T int32 | int64](name string, wanted []T, has map[T]bool, text func(T) string) *NoMatchError {
	if len(wanted) == 0 || slices.ContainsFunc(wanted, func(v T) bool { return has[v] }) {
		return nil
	}
	n := &NoMatchError{Filter: name}
	for _, v := range wanted {
		n.Wanted = append(n.Wanted, text(v))
	}
	values := make([]T, 0, len(has))
	for v := range has {
		values = append(values, v)
	}
	slices.Sort(values)
	for _, v := range values {
		n.Has = append(n.Has, text(v))
	}
	n.Has = ShortenList(n.Has)
	return n
}

// ShortenList shortens a list of values to 20, and adds how many more there are.
func ShortenList(values []string) []string {
	const most = 20
	if len(values) <= most {
		return values
	}
	return append(values[:most:most], fmt.Sprintf("and %d more", len(values)-most))
}

// StreamName formats a stream handle: small numbers in decimal (0 is the default stream), addresses
// in hexadecimal.
func StreamName(stream int64) string {
	if stream >= 0 && stream < 16 {
		return strconv.FormatInt(stream, 10)
	}
	return fmt.Sprintf("0x%x", uint64(stream))
}

// ParseTime parses an offset from the recording's start (12s, 1m30s), a time in
// RFC 3339, or Unix ns with at least 16 digits. It returns Unix ns.
func ParseTime(text string, recording Window) (int64, error) {
	if ns, err := strconv.ParseInt(text, 10, 64); err == nil && ns >= 1e15 {
		return ns, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return 0, fmt.Errorf("read time %q: an offset from the recording's start cannot be negative", text)
		}
		return units.EndOfRange(recording.FromNs, int64(d)), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("read time %q: write an offset such as 12s or a time such as "+
			"2026-11-20T10:00:00Z", text)
	}
	return at.UnixNano(), nil
}

// ParseMoment parses a moment of a recording: peak, end, or a time as ParseTime reads it. The returned
// ns are Unix time. They are 0 for peak and end.
func ParseMoment(text string, recording Window) (ReportMoment, int64, error) {
	switch text {
	case "peak":
		return MomentPeak, 0, nil
	case "end":
		return MomentEnd, 0, nil
	}
	ns, err := ParseTime(text, recording)
	if err != nil {
		return 0, 0, err
	}
	return MomentGivenTime, ns, nil
}

// FormatOffset formats a time (Unix ns) as an offset from the recording's start, as ParseTime
// parses it.
func FormatOffset(ns int64, recording Window) string {
	return time.Duration(max(0, ns-recording.FromNs)).String()
}

// ParseStream parses a stream handle, decimal or 0x….
func ParseStream(text string) (int64, error) {
	v, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("read stream %q: write a handle such as 0 or 0x55d0c0de1230", text)
	}
	return int64(v), nil
}

// FormatPid formats a process id, or another small number.
func FormatPid(pid int32) string { return strconv.Itoa(int(pid)) }

// PassesAllocator reports whether the caching allocator of a process and device passes the filter.
func (f *Filter) PassesAllocator(pid, device int32) bool {
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) &&
		(len(f.Devices) == 0 || slices.Contains(f.Devices, device))
}

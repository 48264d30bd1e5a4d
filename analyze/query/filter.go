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

// Filter narrows a report; the zero value lets everything through. A list that is
// not empty must hold the call's value.
type Filter struct {
	// FromNs and ToNs bound the time, Unix ns; 0 is the recording's own bound.
	FromNs, ToNs int64
	Pids, Tids   []int32
	Devices      []int32
	Streams      []int64
	// MinBytes leaves out allocations and copies smaller than this.
	MinBytes int64
	// Kernel, if set, leaves out launches of other kernels.
	Kernel *regexp.Regexp

	Choice *Choice // by which Restrict narrowed Pids
}

// Choice is the choice of processes that narrowed a filter.
type Choice struct {
	Pids []int32 // of the filter before
	// NoMatch returns the condition that none of these processes fulfils.
	NoMatch func(pids map[int32]bool) *NoMatch
}

// NoMatch says that no row passed the filter, and which condition is to blame.
type NoMatch struct {
	// Filter is the condition (pid, tid, device, stream, rank, job, container), or "" when each
	// of them matches something but nothing matches all.
	Filter string
	// Wanted is what it asked for, Has what the recording has.
	Wanted, Has []string
}

func (n *NoMatch) Error() string {
	if n.Filter == "" {
		return "no row matches all filters together"
	}
	has := strings.Join(n.Has, ", ")
	if has == "" {
		has = "none"
	}
	return fmt.Sprintf("no row matches --%s %s; the recording has %s %s",
		n.Filter, strings.Join(n.Wanted, ","), units.PluralOf(n.Filter), has)
}

// Window cuts the recording's window to the filter's.
func (f *Filter) Window(w Window) Window {
	if f.FromNs != 0 {
		w.FromNs = f.FromNs
	}
	if f.ToNs != 0 {
		w.ToNs = f.ToNs
	}
	return w
}

// Callers reports whether the filter looks at who made a call.
func (f *Filter) Callers() bool {
	return len(f.Pids)+len(f.Tids)+len(f.Devices)+len(f.Streams) > 0
}

// PassesCaller reports whether the filter lets calls of this thread, device and stream
// through.
func (f *Filter) PassesCaller(pid, tid, device int32, stream int64) bool {
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) &&
		(len(f.Tids) == 0 || slices.Contains(f.Tids, tid)) &&
		(len(f.Devices) == 0 || slices.Contains(f.Devices, device)) &&
		(len(f.Streams) == 0 || slices.Contains(f.Streams, stream))
}

// hasSize reports whether the bytes of such calls are an amount that was asked for.
func hasSize(kind string) bool {
	return kind == format.KindAlloc || kind == format.KindMemcpy || kind == format.KindMemset
}

// PassesKernel reports whether the filter lets a call with this kernel through.
func (f *Filter) PassesKernel(kind, kernel string) bool {
	return f.Kernel == nil || kind != format.KindLaunch || f.Kernel.MatchString(kernel)
}

// PassesSize reports whether the filter lets a call of this size through.
func (f *Filter) PassesSize(kind string, bytes int64) bool {
	return f.MinBytes == 0 || !hasSize(kind) || bytes >= f.MinBytes
}

// Callers collects who made the calls that a report looked at, to explain a filter
// that matches nothing.
type Callers struct {
	Pids, tids, devices map[int32]bool
	streams             map[int64]bool
}

func NewCallers() *Callers {
	return &Callers{make(map[int32]bool), make(map[int32]bool), make(map[int32]bool), make(map[int64]bool)}
}

func (c *Callers) Add(pid, tid, device int32, stream int64) {
	c.Pids[pid], c.tids[tid], c.devices[device], c.streams[stream] = true, true, true, true
}

// Explain returns the condition of the filter that nothing fulfils.
func (c *Callers) Explain(f *Filter) *NoMatch {
	return FirstNoMatch(
		f.NoProcess(c.Pids),
		NewNoMatch("tid", f.Tids, c.tids, PidText),
		NewNoMatch("device", f.Devices, c.devices, PidText),
		NewNoMatch("stream", f.Streams, c.streams, StreamName),
	)
}

// NoProcess returns the condition on processes that none of these fulfils.
func (f *Filter) NoProcess(pids map[int32]bool) *NoMatch {
	if f.Choice != nil {
		return f.Choice.NoMatch(pids)
	}
	return NewNoMatch("pid", f.Pids, pids, PidText)
}

func FirstNoMatch(candidates ...*NoMatch) *NoMatch {
	for _, n := range candidates {
		if n != nil {
			return n
		}
	}
	return &NoMatch{}
}

func NewNoMatch[T int32 | int64](name string, wanted []T, has map[T]bool, text func(T) string) *NoMatch {
	if len(wanted) == 0 || slices.ContainsFunc(wanted, func(v T) bool { return has[v] }) {
		return nil
	}
	n := &NoMatch{Filter: name}
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
	n.Has = AtMostNamed(n.Has)
	return n
}

// AtMostNamed cuts a list of values to 20 and says how many there are beyond.
func AtMostNamed(values []string) []string {
	const most = 20
	if len(values) <= most {
		return values
	}
	return append(values[:most:most], fmt.Sprintf("and %d more", len(values)-most))
}

// StreamName is a stream handle as users know it: 0 is the default stream, others
// are addresses.
func StreamName(stream int64) string {
	if stream >= 0 && stream < 16 {
		return strconv.FormatInt(stream, 10)
	}
	return fmt.Sprintf("0x%x", uint64(stream))
}

// ParseTime reads a moment: an offset from the recording's start (12s, 1m30s), a time in
// RFC 3339, or Unix ns, which have 16 digits or more.
func ParseTime(text string, recording Window) (int64, error) {
	if ns, err := strconv.ParseInt(text, 10, 64); err == nil && ns >= 1e15 {
		return ns, nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return 0, fmt.Errorf("read time %q: an offset counts from the recording's start and is not negative", text)
		}
		return units.EndOf(recording.FromNs, int64(d)), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0, fmt.Errorf("read time %q: neither an offset such as 12s nor a time such as "+
			"2026-11-20T10:00:00Z", text)
	}
	return at.UnixNano(), nil
}

// Offset writes a moment as ParseTime reads it: from the recording's start.
func Offset(ns int64, recording Window) string {
	return time.Duration(max(0, ns-recording.FromNs)).String()
}

// ParseStream reads a stream handle, decimal or 0x….
func ParseStream(text string) (int64, error) {
	v, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("read stream %q: want a handle such as 0 or 0x55d0c0de1230", text)
	}
	return int64(v), nil
}

func PidText(pid int32) string { return strconv.Itoa(int(pid)) }

// PassesAllocator reports whether the filter lets an allocator through.
func (f *Filter) PassesAllocator(pid, device int32) bool {
	return (len(f.Pids) == 0 || slices.Contains(f.Pids, pid)) &&
		(len(f.Devices) == 0 || slices.Contains(f.Devices, device))
}

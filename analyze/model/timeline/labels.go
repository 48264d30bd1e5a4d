package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// ThreadLabel returns the label of a thread: its tid and name, and its pid if there are several
// processes.
func (t *Timeline) ThreadLabel(th origin.Thread) string {
	label := fmt.Sprint(th.Tid)
	if len(t.Facts.Processes) > 1 {
		label = fmt.Sprintf("%d/%d", th.Pid, th.Tid)
	}
	if name := t.Facts.Threads[th]; name != "" {
		label += " " + name
	}
	return label
}

// GPUName returns the name of a device, or nil if it is unknown.
func (t *Timeline) GPUName(device int32) any { return units.TextOrNil(t.Facts.Devices[device].Name) }

// PidOnDevice identifies a process on a device.
type PidOnDevice struct{ Device, Pid int32 }

// ProcessName returns the name of a process, and whether the process was recorded.
func (t *Timeline) ProcessName(pid int32) (name string, recorded bool) {
	p, recorded := t.Facts.Processes[pid]
	return strings.TrimSpace(cmp.Or(p.Name, t.Facts.Others[pid])), recorded
}

// NoStackSite is the call site of calls without a recorded stack.
const NoStackSite = "(no stack)"

// FormatExactSize returns the exact size in bytes: rounded sizes can look equal.
func FormatExactSize(bytes int64) string { return fmt.Sprintf("%d B", bytes) }

// OriginLabel returns the label of an origin's group. by is a value of --by.
func (t *Timeline) OriginLabel(id int32, by string) string {
	o := &t.Origins.List[id]
	switch by {
	case "stack":
		if o.Stack == 0 {
			return NoStackSite
		}
		return fmt.Sprintf("%s #%d", t.SiteOfOrigin(id), o.Stack)
	case "function", "library":
		f, ok := t.Stacks.UserFrame(o.Stack)
		switch {
		case !ok:
			return NoStackSite
		case by == "library" && f.Module == "":
			return "(no library)"
		case by == "library":
			return f.Module
		}
		return query.FrameName(f)
	case "thread":
		if name := t.Facts.Threads[origin.Thread{Pid: o.Pid, Tid: o.Tid}]; name != "" {
			return fmt.Sprintf("%d %s", o.Tid, name)
		}
		return fmt.Sprint(o.Tid)
	case "stream":
		return query.StreamName(o.Stream)
	case "device":
		return t.OrdinalDeviceLabel(o.Pid, o.Device)
	case "pid":
		return t.PidLabel(o.Pid)
	case "name":
		return t.Origins.FunctionOf(id)
	}
	switch {
	case slices.Contains(IdentityGroups, by):
		return t.ProcessIdentityLabel(o.Pid, by)
	case slices.Contains(stack.OperatorGroups, by):
		return t.Stacks.OperatorLabel(o.Stack, by)
	}
	return t.SiteOfOrigin(id)
}

// SiteOfOrigin returns the call site of an origin.
func (t *Timeline) SiteOfOrigin(id int32) string {
	if site, ok := t.Stacks.Sites[t.Origins.List[id].Stack]; ok {
		return site
	}
	if site := t.Origins.SiteOf(id); site != "" {
		return site
	}
	return t.SiteOfStack(t.Origins.List[id].Stack)
}

// ViaOfOrigin returns the line of the program for which the autograd thread of an origin works, such as that of
// loss.backward(). It is "" for other threads, and if the line is unknown.
func (t *Timeline) ViaOfOrigin(id int32) string { return t.ViaOfStack(t.Origins.List[id].Via) }

// ViaOfStack returns the line of the program of a stack in the column via_stack_id, "" if it is unknown.
func (t *Timeline) ViaOfStack(stack int32) string {
	if stack == 0 {
		return ""
	}
	if site := t.SiteOfStack(stack); site != NoStackSite {
		return site
	}
	return ""
}

// SiteOfStack returns the call site of a stack.
func (t *Timeline) SiteOfStack(stack int32) string {
	if site, ok := t.Stacks.Sites[stack]; ok {
		return site
	}
	if site := t.Stacks.About[stack].Site; site != "" {
		return site
	}
	f, ok := t.Stacks.UserFrame(stack)
	if !ok {
		return NoStackSite
	}
	return symbolize.NameWithLine(query.FrameName(f), f.File, f.Line)
}

// DeviceLabel returns the index and name of a device.
func (t *Timeline) DeviceLabel(device int32) string {
	if device < 0 {
		return "(none)"
	}
	if name := t.Facts.Devices[device].Name; name != "" {
		return fmt.Sprintf("%d %s", device, name)
	}
	return fmt.Sprint(device)
}

// SiteOfCall returns the call site of a call: from the stack's source lines, else the recorded
// site, else the site that its stack gives.
func (t *Timeline) SiteOfCall(stack int32, site string) string {
	if named, ok := t.Stacks.Sites[stack]; ok {
		return named
	}
	return cmp.Or(site, t.SiteOfStack(stack))
}

// LibraryOfOrigin returns the library that called the driver. It is PyTorch for memory from before the recording: only
// the segments of its allocator are known then.
func (t *Timeline) LibraryOfOrigin(id int32) string {
	if t.Origins.IsEarlier(id) {
		return "PyTorch"
	}
	return t.Stacks.CallingLibrary(t.Origins.List[id].Stack)
}

// IsHostOrigin reports whether memory of an origin is host memory.
func (t *Timeline) IsHostOrigin(originID int32) bool {
	return livemem.IsHostKind(t.Origins.MemoryKindOf(originID))
}

// SiteOfBlock returns the call site that allocated a block.
func (t *Timeline) SiteOfBlock(originID int32) string {
	if originID == origin.NoOrigin {
		return origin.EarlierSite
	}
	return t.SiteOfOrigin(originID)
}

// SiteOfPiece returns the call site that allocated a block of a caching allocator.
func (t *Timeline) SiteOfPiece(p *caching.SegmentPiece) string {
	if p.IsUnseen {
		return origin.UnseenSite
	}
	return t.SiteOfBlock(p.Origin)
}

// PidLabel returns a process's pid, name and rank.
func (t *Timeline) PidLabel(pid int32) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", pid, t.ProcessTitle(pid)))
}

//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"

	"github.com/gpurec/gpurec/record/hoststack"
)

// stacksPrinter prints snapshots in one format.
type stacksPrinter struct {
	format string
	out    io.Writer
	// many says that more than one snapshot is printed: each JSON object is then one line.
	many   bool
	folded map[string]int // threads by folded stack, of all snapshots
	// threads and missed count over all snapshots.
	threads, missed, truncated int64
}

func newStacksPrinter(format string, out io.Writer, many bool) *stacksPrinter {
	return &stacksPrinter{format: format, out: out, many: many, folded: make(map[string]int)}
}

// print prints one snapshot of some processes. The folded format is printed at the end.
func (p *stacksPrinter) print(snapshots []*hoststack.ProcessSnapshot, communicators []processCommunicators) error {
	for _, snapshot := range snapshots {
		p.threads += int64(len(snapshot.Threads))
		p.missed += int64(snapshot.Count(hoststack.StatusMissed))
		p.truncated += int64(snapshot.Count(hoststack.StatusTruncated))
		if p.format == "folded" {
			p.fold(snapshot)
		}
		if p.format != "json" {
			for _, note := range snapshot.Notes {
				message.Warningf("process %d: %s", snapshot.Pid, note)
			}
		}
	}
	switch p.format {
	case "text":
		return printStacksText(p.out, snapshots, communicators)
	case "json":
		return printStacksJSON(p.out, snapshots, communicators, p.many)
	}
	return nil
}

// finish prints folded stacks, and the share of complete stacks if there were several snapshots.
func (p *stacksPrinter) finish() error {
	if p.many || p.format == "folded" {
		message.Notef("%s: %s truncated, %s missed", units.CountWithNoun(p.threads, "stack"),
			units.FormatCount(p.truncated), units.FormatCount(p.missed))
	}
	if p.format != "folded" {
		return nil
	}
	w := bufio.NewWriter(p.out)
	lines := make([]string, 0, len(p.folded))
	for stack := range p.folded {
		lines = append(lines, stack)
	}
	slices.Sort(lines)
	for _, stack := range lines {
		fmt.Fprintf(w, "%s %d\n", stack, p.folded[stack])
	}
	return w.Flush()
}

// fold counts the stacks of a snapshot: thread name first, then frames from the first to the innermost.
func (p *stacksPrinter) fold(snapshot *hoststack.ProcessSnapshot) {
	for i := range snapshot.Threads {
		t := &snapshot.Threads[i]
		parts := []string{foldedText(t.Name)}
		if t.Status != hoststack.StatusComplete {
			parts = append(parts, "["+t.Status+"]")
		}
		for j := len(t.Frames) - 1; j >= 0; j-- {
			parts = append(parts, foldedText(stackFrameName(&t.Frames[j])))
		}
		p.folded[strings.Join(parts, ";")]++
	}
}

// foldedText returns a text without the separators of the folded format.
func foldedText(text string) string {
	return strings.Map(message.Printable, strings.ReplaceAll(text, ";", ":"))
}

// stackFrameName returns the name of a frame: Python frames with their line, kernel frames with a
// mark.
func stackFrameName(f *format.Frame) string {
	name := symbolize.FrameName(f.Func, f.Module, f.Addr)
	switch f.Type {
	case "python":
		return symbolize.NameWithLine(name, f.File, f.Line)
	case hoststack.FrameKernel:
		return name + " [" + f.Module + "]"
	}
	return name
}

// printStacksText prints snapshots for people. Threads with equal stacks and states share them.
func printStacksText(
	out io.Writer,
	snapshots []*hoststack.ProcessSnapshot,
	communicators []processCommunicators,
) error {
	w := bufio.NewWriter(out)
	groups := groupSnapshots(snapshots)
	for _, line := range describeGroups(groups) {
		fmt.Fprintln(w, line)
	}
	for i, snapshot := range snapshots {
		if i > 0 || len(groups) > 1 || len(snapshots) > 1 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, describeSnapshot(snapshot))
		for _, group := range groupThreads(snapshot.Threads) {
			fmt.Fprintln(w)
			for _, t := range group {
				fmt.Fprintln(w, describeThread(t, snapshot))
			}
			for j := range group[0].Frames {
				fmt.Fprintf(w, "    %s\n", describeFrame(&group[0].Frames[j]))
			}
		}
	}
	if len(communicators) == 0 && len(snapshots) > 1 {
		fmt.Fprintln(w, "\nNone of these processes has loaded NCCL: there are no collectives to compare.")
	}
	printCommunicators(w, communicators)
	return w.Flush()
}

// describeSnapshot returns the first line of a snapshot: the process and how many stacks are complete.
func describeSnapshot(snapshot *hoststack.ProcessSnapshot) string {
	parts := []string{units.CountWithNoun(int64(snapshot.Count(hoststack.StatusComplete)), "stack") + " complete"}
	for _, status := range []string{hoststack.StatusTruncated, hoststack.StatusMissed} {
		if n := snapshot.Count(status); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	text := fmt.Sprintf("process %d (%s): %s, %s, in %s", snapshot.Pid, snapshot.Name,
		units.CountWithNoun(int64(len(snapshot.Threads)), "thread"), strings.Join(parts, ", "),
		units.FormatDuration(snapshot.Took.Nanoseconds()))
	if snapshot.Python != "" {
		text += ", Python " + snapshot.Python
	}
	return strings.Map(message.Printable, text)
}

// groupThreads groups threads with equal frames. Groups are in the order of their first thread.
func groupThreads(threads []hoststack.Thread) [][]*hoststack.Thread {
	var groups [][]*hoststack.Thread
	known := make(map[string]int)
	for i := range threads {
		t := &threads[i]
		var key strings.Builder
		for j := range t.Frames {
			f := &t.Frames[j]
			fmt.Fprintf(&key, "%s\x00%s\x00%d\x00%s\n", f.Func, f.Module, f.Addr, describeFrame(f))
		}
		n, ok := known[key.String()]
		if !ok {
			n = len(groups)
			known[key.String()] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], t)
	}
	return groups
}

// describeThread returns the line of a thread: state, system call, reason of the wait, times, CUDA call.
func describeThread(t *hoststack.Thread, snapshot *hoststack.ProcessSnapshot) string {
	text := fmt.Sprintf("thread %d %q: %s", t.Tid, t.Name, t.State)
	if t.SystemCall != "" && t.State != hoststack.StateRunning && t.State != hoststack.StateRunnable {
		text += " in " + t.SystemCall
	}
	if why := catalog.DescribeWait(
		&t.Wait,
		findOwnerLine(snapshot, t),
	); why != "" &&
		t.Wait.Reason != format.ReasonSleep {
		text += ": " + why
	}
	if t.InIOWait && t.Wait.Reason != format.ReasonFile && t.Wait.Reason != format.ReasonPageFault {
		text += ", waits for a disk"
	}
	if t.OffNs > 0 {
		text += ", for " + units.FormatDuration(t.OffNs)
	}
	text += ", CPU time " + units.FormatDuration(t.RunNs)
	if t.CUDACall != "" && t.Wait.Reason != format.ReasonCUDA {
		text += ", in " + t.CUDACall
	}
	if t.Status != hoststack.StatusComplete {
		text += " (" + t.Status + ": " + t.Reason + ")"
	}
	return strings.Map(message.Printable, text)
}

// findOwnerLine returns where the owner of a lock is: its innermost Python line, or else its innermost
// named function outside of the kernel. It returns "" if the owner is not in the snapshot.
func findOwnerLine(snapshot *hoststack.ProcessSnapshot, waiter *hoststack.Thread) string {
	for i := range snapshot.Threads {
		t := &snapshot.Threads[i]
		if waiter.Wait.OwnerTid == 0 || t.Tid != int(waiter.Wait.OwnerTid) {
			continue
		}
		if line := t.Site(); line != nil {
			return stackFrameName(line)
		}
	}
	return ""
}

// describeFrame returns the line of a frame.
func describeFrame(f *format.Frame) string {
	text := stackFrameName(f)
	if f.Type == "native" && f.Func != "" && f.Module != "" {
		text += " (" + symbolize.ModuleName(f.Module) + ")"
	}
	return strings.Map(message.Printable, text)
}

// jsonSnapshot is a snapshot of one process in JSON.
type jsonSnapshot struct {
	Pid         int          `json:"pid"`
	Name        string       `json:"name"`
	TakenUnixNs int64        `json:"taken_unix_ns"`
	TookNs      int64        `json:"took_ns"`
	Python      string       `json:"python,omitempty"`
	Complete    int          `json:"complete"`
	Truncated   int          `json:"truncated"`
	Missed      int          `json:"missed"`
	Notes       []string     `json:"notes"`
	Rank        *int         `json:"rank,omitempty"`
	Threads     []jsonThread `json:"threads"`
	// Communicators are those of NCCL. CommunicatorsMissing says why some or all are not known.
	Communicators        []jsonCommunicator `json:"communicators,omitempty"`
	CommunicatorsMissing string             `json:"communicators_missing,omitempty"`
}

type jsonThread struct {
	Tid                 int              `json:"tid"`
	NamespaceTid        int              `json:"namespace_tid"`
	Name                string           `json:"name"`
	State               string           `json:"state"`
	CPU                 int              `json:"cpu"`
	InIOWait            bool             `json:"in_iowait"`
	CPUTimeNs           int64            `json:"cpu_time_ns"`
	RunQueueNs          int64            `json:"run_queue_ns"`
	OffCPUNs            int64            `json:"off_cpu_ns"`
	VoluntarySwitches   uint64           `json:"voluntary_switches"`
	InvoluntarySwitches uint64           `json:"involuntary_switches"`
	SystemCall          string           `json:"system_call,omitempty"`
	CUDACall            string           `json:"cuda_call,omitempty"`
	Wait                *format.WaitFact `json:"wait,omitempty"`
	Status              string           `json:"status"`
	Reason              string           `json:"reason,omitempty"`
	Rounds              int              `json:"rounds"`
	Frames              []jsonFrame      `json:"frames"`
}

type jsonFrame struct {
	Type     string `json:"type"`
	Function string `json:"function,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int32  `json:"line,omitempty"`
	Module   string `json:"module,omitempty"`
	BuildID  string `json:"build_id,omitempty"`
	Address  string `json:"address,omitempty"` // hexadecimal: JSON numbers have 53 bits
}

// printStacksJSON prints one object with the snapshots. With several snapshots, each object is one line.
func printStacksJSON(
	out io.Writer, snapshots []*hoststack.ProcessSnapshot, communicators []processCommunicators, oneLine bool,
) error {
	object := struct {
		Processes     []jsonSnapshot   `json:"processes"`
		Groups        []jsonGroup      `json:"groups"`
		Communicators []jsonComparison `json:"communicators"`
	}{[]jsonSnapshot{}, newJSONGroups(groupSnapshots(snapshots)), newJSONComparisons(communicators)}
	for _, snapshot := range snapshots {
		j := newJSONSnapshot(snapshot)
		for i := range communicators {
			if p := &communicators[i]; p.pid == snapshot.Pid {
				j.CommunicatorsMissing = p.describeMissing()
				if p.err == nil {
					j.Communicators = newJSONCommunicators(p)
				}
			}
		}
		object.Processes = append(object.Processes, j)
	}
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if !oneLine {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(object)
}

func newJSONSnapshot(snapshot *hoststack.ProcessSnapshot) jsonSnapshot {
	l := jsonSnapshot{
		Pid:         snapshot.Pid,
		Name:        snapshot.Name,
		TakenUnixNs: snapshot.Taken.UnixNano(),
		TookNs:      snapshot.Took.Nanoseconds(),
		Python:      snapshot.Python,
		Complete:    snapshot.Count(hoststack.StatusComplete),
		Truncated:   snapshot.Count(hoststack.StatusTruncated),
		Missed:      snapshot.Count(hoststack.StatusMissed),
		Notes:       append([]string{}, snapshot.Notes...),
		Threads:     []jsonThread{},
	}
	if snapshot.Identity != nil {
		l.Rank = snapshot.Identity.Rank
	}
	for i := range snapshot.Threads {
		l.Threads = append(l.Threads, newJSONThread(&snapshot.Threads[i]))
	}
	return l
}

func newJSONThread(t *hoststack.Thread) jsonThread {
	j := jsonThread{
		Tid: t.Tid, NamespaceTid: t.NamespaceTid, Name: t.Name, State: t.State, CPU: t.CPU, InIOWait: t.InIOWait,
		CPUTimeNs: t.RunNs, RunQueueNs: t.RunDelayNs, OffCPUNs: t.OffNs, VoluntarySwitches: t.VoluntarySwitches,
		InvoluntarySwitches: t.InvoluntarySwitches, SystemCall: t.SystemCall, CUDACall: t.CUDACall,
		Wait: &t.Wait, Status: t.Status, Reason: t.Reason, Rounds: t.Rounds, Frames: []jsonFrame{},
	}
	for i := range t.Frames {
		f := &t.Frames[i]
		frame := jsonFrame{
			Type: f.Type, Function: f.Func, File: f.File, Line: f.Line, Module: f.Module, BuildID: f.BuildID,
		}
		// Kernel addresses help attackers: they are shown only if they have no name.
		if f.Type != "python" && (f.Type != hoststack.FrameKernel || f.Func == "") {
			frame.Address = "0x" + strconv.FormatUint(uint64(f.Addr), 16)
		}
		j.Frames = append(j.Frames, frame)
	}
	return j
}

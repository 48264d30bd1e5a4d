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

// stacksPrinter prints looks in one format.
type stacksPrinter struct {
	format string
	out    io.Writer
	// many says that more than one look is printed: each JSON object is then one line.
	many   bool
	folded map[string]int // threads by folded stack, of all looks
	// threads and missed count over all looks.
	threads, missed, truncated int64
}

func newStacksPrinter(format string, out io.Writer, many bool) *stacksPrinter {
	return &stacksPrinter{format: format, out: out, many: many, folded: make(map[string]int)}
}

// print prints one look at some processes. The folded format is printed at the end.
func (p *stacksPrinter) print(looks []*hoststack.Look, communicators []processCommunicators) error {
	for _, look := range looks {
		p.threads += int64(len(look.Threads))
		p.missed += int64(look.Count(hoststack.StatusMissed))
		p.truncated += int64(look.Count(hoststack.StatusTruncated))
		if p.format == "folded" {
			p.fold(look)
		}
		if p.format != "json" {
			for _, note := range look.Notes {
				message.Warningf("process %d: %s", look.Pid, note)
			}
		}
	}
	switch p.format {
	case "text":
		return printStacksText(p.out, looks, communicators)
	case "json":
		return printStacksJSON(p.out, looks, communicators, p.many)
	}
	return nil
}

// finish prints folded stacks, and the share of complete stacks if there were several looks.
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

// fold counts the stacks of a look: thread name first, then frames from the first to the innermost.
func (p *stacksPrinter) fold(look *hoststack.Look) {
	for i := range look.Threads {
		t := &look.Threads[i]
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

// printStacksText prints looks for people. Threads with equal stacks and states share them.
func printStacksText(out io.Writer, looks []*hoststack.Look, communicators []processCommunicators) error {
	w := bufio.NewWriter(out)
	groups := groupLooks(looks)
	for _, line := range describeGroups(groups) {
		fmt.Fprintln(w, line)
	}
	for i, look := range looks {
		if i > 0 || len(groups) > 1 || len(looks) > 1 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, describeLook(look))
		for _, group := range groupThreads(look.Threads) {
			fmt.Fprintln(w)
			for _, t := range group {
				fmt.Fprintln(w, describeThread(t, look))
			}
			for j := range group[0].Frames {
				fmt.Fprintf(w, "    %s\n", describeFrame(&group[0].Frames[j]))
			}
		}
	}
	printCommunicators(w, communicators)
	return w.Flush()
}

// describeLook returns the first line of a look: the process and how many stacks are complete.
func describeLook(look *hoststack.Look) string {
	parts := []string{units.CountWithNoun(int64(look.Count(hoststack.StatusComplete)), "stack") + " complete"}
	for _, status := range []string{hoststack.StatusTruncated, hoststack.StatusMissed} {
		if n := look.Count(status); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	text := fmt.Sprintf("process %d (%s): %s, %s, in %s", look.Pid, look.Name,
		units.CountWithNoun(int64(len(look.Threads)), "thread"), strings.Join(parts, ", "),
		units.FormatDuration(look.Took.Nanoseconds()))
	if look.Python != "" {
		text += ", Python " + look.Python
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
func describeThread(t *hoststack.Thread, look *hoststack.Look) string {
	text := fmt.Sprintf("thread %d %q: %s", t.Tid, t.Name, t.State)
	if t.SystemCall != "" && t.State != hoststack.StateRunning && t.State != hoststack.StateRunnable {
		text += " in " + t.SystemCall
	}
	if why := catalog.DescribeWait(&t.Wait, findOwnerLine(look, t)); why != "" && t.Wait.Reason != format.ReasonSleep {
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
// named function outside of the kernel. It returns "" if the owner is not in the look.
func findOwnerLine(look *hoststack.Look, waiter *hoststack.Thread) string {
	for i := range look.Threads {
		t := &look.Threads[i]
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

// jsonLook is a look at one process in JSON.
type jsonLook struct {
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

// printStacksJSON prints one object with the looks. With several looks, each object is one line.
func printStacksJSON(
	out io.Writer, looks []*hoststack.Look, communicators []processCommunicators, oneLine bool,
) error {
	object := struct {
		Processes     []jsonLook       `json:"processes"`
		Groups        []jsonGroup      `json:"groups"`
		Communicators []jsonComparison `json:"communicators"`
	}{[]jsonLook{}, newJSONGroups(groupLooks(looks)), newJSONComparisons(communicators)}
	for _, look := range looks {
		j := newJSONLook(look)
		for i := range communicators {
			if p := &communicators[i]; p.pid == look.Pid {
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

func newJSONLook(look *hoststack.Look) jsonLook {
	l := jsonLook{
		Pid: look.Pid, Name: look.Name, TakenUnixNs: look.Taken.UnixNano(), TookNs: look.Took.Nanoseconds(),
		Python: look.Python, Complete: look.Count(hoststack.StatusComplete),
		Truncated: look.Count(hoststack.StatusTruncated), Missed: look.Count(hoststack.StatusMissed),
		Notes: append([]string{}, look.Notes...), Threads: []jsonThread{},
	}
	if look.Identity != nil {
		l.Rank = look.Identity.Rank
	}
	for i := range look.Threads {
		l.Threads = append(l.Threads, newJSONThread(&look.Threads[i]))
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

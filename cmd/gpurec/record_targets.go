//go:build linux

package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/cmd/gpurec/terminal"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gpurec/gpurec/record/process"
	"github.com/gpurec/gpurec/record/ps"
)

// maxNamed bounds the processes that a message names.
const maxNamed = 5

// noTarget returns the usage error of a command line without a target. On a terminal it prints the
// processes that use CUDA first.
func noTarget() error {
	hint := "sudo gpurec record -p PID -d 10s"
	if fd := int(os.Stderr.Fd()); term.IsTerminal(fd) {
		list := ps.List(true)
		width, _, _ := terminal.Inspect(os.Stderr, terminal.ColorNever)
		if err := printPsTable(os.Stderr, list, time.Now(), width); err != nil {
			return err
		}
		for _, note := range psNotes(list) {
			message.Notef("%s", note)
		}
		if len(list.Processes) > 0 {
			hint = fmt.Sprintf("sudo gpurec record -p %d -d 10s", list.Processes[0].Pid)
		}
	}
	return message.Usagef(hint, "say what to record: -p PID, --all or -- COMMAND")
}

// lookAround counts the running processes that --all, --comm and --cgroup choose, and warns if
// there are none. Its error is that of an impossible --cgroup.
func (f *recordFlags) lookAround() error {
	if f.opt.Cgroup != "" {
		if err := process.CheckCgroup(f.opt.Cgroup); err != nil {
			return f.explain(err)
		}
	}
	list := ps.List(false)
	f.matching = slices.DeleteFunc(slices.Clone(list.Processes), func(p ps.Process) bool { return !f.matches(&p) })
	if len(f.matching) > 0 {
		return nil
	}
	text, hint := f.unmatched(list, os.Args)
	if f.narrowed() == "" {
		message.Notef("%s", text)
	} else {
		message.Warningf("%s", text)
	}
	if hint != "" {
		message.Hintf("%s", hint)
	}
	return nil
}

// unmatched says that no running process is to be recorded, and which ones use CUDA instead. The
// hint is this command line for those, "" if there are none.
func (f *recordFlags) unmatched(list ps.Listing, args []string) (text, hint string) {
	wanted, denied := f.narrowed(), ""
	if list.Denied > 0 {
		denied = "; " + notLookedAt(list.Denied)
	}
	switch {
	case wanted == "":
		return "no process uses CUDA yet" + denied + "; recording waits for the first", ""
	case len(list.Processes) == 0:
		return fmt.Sprintf("no process%s uses CUDA, and no other does%s; recording waits for new "+
			"ones%s", wanted, denied, wanted), ""
	}
	text = fmt.Sprintf("no process%s uses CUDA; these do: %s%s; recording waits for new "+
		"ones%s", wanted, f.name(list.Processes), denied, wanted)
	return text, f.instead(list.Processes, args)
}

// matches reports whether --comm and --cgroup choose the process.
func (f *recordFlags) matches(p *ps.Process) bool {
	return (f.opt.Comm == "" || p.Command == f.opt.Comm) && (f.opt.Cgroup == "" || p.IsIn(f.opt.Cgroup))
}

// narrowed says which processes --all records.
func (f *recordFlags) narrowed() string {
	text := ""
	if f.opt.Comm != "" {
		text += " named " + f.opt.Comm
	}
	if f.opt.Cgroup != "" {
		text += " in cgroup " + f.opt.Cgroup
	}
	return text
}

// name names processes by pid and name and, with --cgroup, by cgroup: the first five, and how many
// there are besides.
func (f *recordFlags) name(all []ps.Process) string {
	var names []string
	for _, p := range all {
		text := fmt.Sprintf("%d (%s)", p.Pid, p.Command)
		if f.opt.Cgroup != "" && p.Cgroup != "" {
			text += " in " + p.Cgroup
		}
		names = append(names, text)
	}
	return firstOf(names)
}

// firstOf joins the first five texts and says how many more there are.
func firstOf(texts []string) string {
	if more := len(texts) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:maxNamed], ", "), more)
	}
	return strings.Join(texts, ", ")
}

// instead returns the command line args for processes that run: with the name or the cgroup that most
// of them have, or else with the first one's pid.
func (f *recordFlags) instead(running []ps.Process, args []string) string {
	byPid := fmt.Sprintf("sudo gpurec record -p %d", running[0].Pid)
	switch {
	case f.opt.Comm != "" && f.opt.Cgroup != "":
		return byPid
	case f.opt.Comm != "":
		name := mostFrequent(running, func(p ps.Process) string { return p.Command })
		if name == "" || strings.ContainsFunc(name, isUnprintable) {
			return byPid
		}
		return withFlag(args, "--comm", name)
	}
	path := mostFrequent(running, func(p ps.Process) string { return p.Cgroup })
	if path == "" || path == "/" || strings.ContainsFunc(path, isUnprintable) {
		return byPid
	}
	return withFlag(args, "--cgroup", path)
}

func isUnprintable(r rune) bool { return message.Printable(r) != r }

// mostFrequent returns the text that most processes have; of several the first.
func mostFrequent(all []ps.Process, text func(ps.Process) string) string {
	count, best := make(map[string]int), ""
	for _, p := range all {
		count[text(p)]++
	}
	for _, p := range all {
		if t := text(p); best == "" || count[t] > count[best] {
			best = t
		}
	}
	return best
}

// withFlag returns a command line, quoted for a shell and with sudo, in which a flag has another
// value.
func withFlag(args []string, flag, value string) string {
	words := []string{"sudo", "gpurec"}
	for i := 1; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == flag && i+1 < len(args):
			words = append(words, arg, shellQuote(value))
			i++
		case strings.HasPrefix(arg, flag+"="):
			words = append(words, flag+"="+shellQuote(value))
		default:
			words = append(words, shellQuote(arg))
		}
	}
	return strings.Join(words, " ")
}

var shellSafe = regexp.MustCompile(`^[A-Za-z0-9_%+,./:=@-]+$`)

// shellQuote quotes a text as one word for a shell: names come from processes we do not trust.
func shellQuote(text string) string {
	if shellSafe.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// running says in a sentence which processes use CUDA.
func (f *recordFlags) running() string {
	list := ps.List(false)
	if len(list.Processes) == 0 {
		return "no process uses CUDA now"
	}
	return "these processes use CUDA: " + f.name(list.Processes)
}

// pidFlags returns -p flags for processes.
func pidFlags(pids []int) string {
	flags := make([]string, 0, len(pids))
	for _, pid := range pids {
		flags = append(flags, fmt.Sprintf("-p %d", pid))
	}
	return strings.Join(flags, " ")
}

// announce says what is recorded from now on, and what will be missing.
func (f *recordFlags) announce(session *record.Session) {
	if n, how := session.Probes(); n == 0 {
		message.Notef("waiting for %s to load libcuda.so.1; Ctrl-C stops", f.targets(session))
	} else if f.opt.All && len(f.matching) == 0 {
		message.Notef("waiting for processes%s that use CUDA: %d probes by %s; Ctrl-C stops", f.narrowed(), n, how)
	} else {
		message.Notef("attached to %s: %d probes by %s; Ctrl-C stops", f.targets(session), n, how)
	}
	if len(f.classes) > 0 && !slices.Contains(f.classes, format.RecordAllocator) &&
		slices.Contains(f.classes, format.RecordMemory) {
		message.Notef("of PyTorch, memory calls show segments, not tensors; --record memory,allocator has both")
	}
	if err := session.StacksError(); errors.Is(err, record.ErrUnpatched) {
		message.Warningf("stacks are not complete: %v; build it with make build", err)
	} else if err != nil {
		message.Warningf("stacks are walked by frame pointers, frames will be missing: %v", err)
	}
	if f.opt.NVMLInterval > 0 && !session.HasNVML() {
		message.Warningf("no NVML: GPU utilisation, memory and power will be missing from the recording")
	}
	if err := f.sayReady(); err != nil {
		message.Warningf("create --ready-file: %v", err)
	}
}

// targets names what is recorded: every process of --all, or the processes asked for and, after
// them, their children.
func (f *recordFlags) targets(session *record.Session) string {
	if f.opt.All {
		return fmt.Sprintf("every process%s that uses CUDA, %d now", f.narrowed(), len(f.matching))
	}
	comms := session.Processes()
	var roots, children []string
	for _, pid := range slices.Sorted(maps.Keys(comms)) {
		text := fmt.Sprintf("%d (%s)", pid, comms[pid])
		if slices.Contains(f.pids, pid) || f.opt.Command != nil && pid == f.opt.Command.Pid() {
			roots = append(roots, text)
		} else {
			children = append(children, text)
		}
	}
	text := strings.Join(roots, ", ")
	switch len(children) {
	case 0:
		return text
	case 1:
		return text + " and 1 child: " + children[0]
	}
	return fmt.Sprintf("%s and %d children: %s", text, len(children), firstOf(children))
}

// registerTargetCompletions completes -p, --comm and --cgroup by the processes that use CUDA now.
func registerTargetCompletions(cmd *cobra.Command) {
	for flag, complete := range map[string]func(ps.Process) string{
		"pid": func(p ps.Process) string {
			return fmt.Sprintf("%d\t%s", p.Pid, strings.Map(message.Printable, p.Command))
		},
		"comm":   func(p ps.Process) string { return p.Command },
		"cgroup": func(p ps.Process) string { return p.Cgroup },
	} {
		// all exist
		_ = cmd.RegisterFlagCompletionFunc(
			flag,
			func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				var values []string
				for _, p := range ps.List(false).Processes {
					value := complete(p)
					if value != "" && !strings.ContainsFunc(strings.Replace(value, "\t", "", 1), isUnprintable) &&
						!slices.Contains(values, value) {
						values = append(values, value)
					}
				}
				return values, cobra.ShellCompDirectiveNoFileComp
			},
		)
	}
}

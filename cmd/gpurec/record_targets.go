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

// maxNamed is the maximum number of processes that one message lists.
const maxNamed = 5

// noTarget returns the usage error for a command line that selects no process. On a terminal it
// first prints a table of the processes that use CUDA.
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
	return message.Usagef(hint, "nothing to record: use -p PID, --all or -- COMMAND")
}

// findMatching sets f.matching to the running processes that --all, --comm and --cgroup select. It
// warns if there are none, and returns an error if the cgroup of --cgroup does not exist.
func (f *recordFlags) findMatching() error {
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
	text, hint := f.noMatchMessage(list, os.Args)
	if f.selection() == "" {
		message.Notef("%s", text)
	} else {
		message.Warningf("%s", text)
	}
	if hint != "" {
		message.Hintf("%s", hint)
	}
	return nil
}

// noMatchMessage returns the warning that no running process matches the flags. The text lists the
// processes that use CUDA. The hint is the command line args changed to record those processes, ""
// if there are none.
func (f *recordFlags) noMatchMessage(list ps.Listing, args []string) (text, hint string) {
	selection, denied := f.selection(), ""
	if list.Denied > 0 {
		denied = "; " + deniedText(list.Denied)
	}
	switch {
	case selection == "":
		return "no process uses CUDA yet" + denied + "; gpurec waits for the first one", ""
	case len(list.Processes) == 0:
		return fmt.Sprintf("no process%s uses CUDA, and no other process does%s; gpurec waits for new "+
			"processes%s", selection, denied, selection), ""
	}
	text = fmt.Sprintf("no process%s uses CUDA; these do: %s%s; gpurec waits for new "+
		"processes%s", selection, f.listNames(list.Processes), denied, selection)
	return text, f.suggestCommand(list.Processes, args)
}

// matches reports whether --comm and --cgroup select process p.
func (f *recordFlags) matches(p *ps.Process) bool {
	return (f.opt.Comm == "" || p.Command == f.opt.Comm) && (f.opt.Cgroup == "" || p.IsInCgroup(f.opt.Cgroup))
}

// selection returns the conditions of --comm and --cgroup, such as " named python3 in cgroup
// /jobs", or "" if gpurec records all processes. It follows the noun "process" in a message.
func (f *recordFlags) selection() string {
	text := ""
	if f.opt.Comm != "" {
		text += " named " + f.opt.Comm
	}
	if f.opt.Cgroup != "" {
		text += " in cgroup " + f.opt.Cgroup
	}
	return text
}

// listNames returns the PID and name of up to maxNamed processes, and the number of further ones.
// With --cgroup it adds the cgroup of each process.
func (f *recordFlags) listNames(all []ps.Process) string {
	var names []string
	for _, p := range all {
		text := fmt.Sprintf("%d (%s)", p.Pid, p.Command)
		if f.opt.Cgroup != "" && p.Cgroup != "" {
			text += " in " + p.Cgroup
		}
		names = append(names, text)
	}
	return joinFirst(names)
}

// joinFirst joins up to maxNamed texts with commas and appends the number of further ones.
func joinFirst(texts []string) string {
	if more := len(texts) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:maxNamed], ", "), more)
	}
	return strings.Join(texts, ", ")
}

// suggestCommand returns the command line args changed so that it matches running processes. It
// replaces --comm or --cgroup by the most frequent value, or selects the first process by its PID.
func (f *recordFlags) suggestCommand(running []ps.Process, args []string) string {
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

// mostFrequent returns the most frequent text of the processes. If texts are equally frequent, the
// text of the earliest process wins.
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

// withFlag returns the command line args with sudo, quoted for a shell, and with a new value for
// flag.
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

// shellQuote quotes a text as one shell word. Process names are untrusted input.
func shellQuote(text string) string {
	if shellSafe.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// runningText returns a clause that lists the processes that use CUDA.
func (f *recordFlags) runningText() string {
	list := ps.List(false)
	if len(list.Processes) == 0 {
		return "no process uses CUDA now"
	}
	return "these processes use CUDA: " + f.listNames(list.Processes)
}

// pidFlags returns a flag -p for each process, separated by spaces.
func pidFlags(pids []int) string {
	flags := make([]string, 0, len(pids))
	for _, pid := range pids {
		flags = append(flags, fmt.Sprintf("-p %d", pid))
	}
	return strings.Join(flags, " ")
}

// announce prints which processes gpurec records from now on, and which data the recording will
// lack.
func (f *recordFlags) announce(session *record.Session) {
	if n, how := session.Probes(); n == 0 {
		message.Notef("waiting for %s to load libcuda.so.1; Ctrl-C stops", f.targets(session))
	} else if f.opt.All && len(f.matching) == 0 {
		message.Notef("waiting for processes%s that use CUDA: %d probes by %s; Ctrl-C stops", f.selection(), n, how)
	} else {
		message.Notef("attached to %s: %d probes by %s; Ctrl-C stops", f.targets(session), n, how)
	}
	if len(f.classes) > 0 && !slices.Contains(f.classes, format.RecordAllocator) &&
		slices.Contains(f.classes, format.RecordMemory) {
		message.Notef(
			"--record memory records PyTorch's segments but not its tensors; use --record memory,allocator for " +
				"both",
		)
	}
	if err := session.StacksError(); errors.Is(err, record.ErrUnpatched) {
		message.Warningf("stacks will miss frames: %v; run make build", err)
	} else if err != nil {
		message.Warningf("stacks will miss frames because gpurec follows frame pointers: %v", err)
	}
	if f.opt.NVMLInterval > 0 && !session.HasNVML() {
		message.Warningf("NVML is not available: the recording will have no GPU utilisation, memory or power")
	}
	if err := f.createReadyFile(); err != nil {
		message.Warningf("create --ready-file: %v", err)
	}
}

// targets describes the recorded processes. With --all, --comm or --cgroup it returns their number.
// Else it lists the processes of -p or the command, then their children.
func (f *recordFlags) targets(session *record.Session) string {
	if f.opt.All {
		return fmt.Sprintf("every process%s that uses CUDA, %d now", f.selection(), len(f.matching))
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
	return fmt.Sprintf("%s and %d children: %s", text, len(children), joinFirst(children))
}

// registerTargetCompletions makes the shell complete -p, --comm and --cgroup with values of the
// processes that use CUDA.
func registerTargetCompletions(cmd *cobra.Command) {
	for flag, complete := range map[string]func(ps.Process) string{
		"pid": func(p ps.Process) string {
			return fmt.Sprintf("%d\t%s", p.Pid, strings.Map(message.Printable, p.Command))
		},
		"comm":   func(p ps.Process) string { return p.Command },
		"cgroup": func(p ps.Process) string { return p.Cgroup },
	} {
		// RegisterFlagCompletionFunc fails only for an unknown flag.
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

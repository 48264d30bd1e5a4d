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

// maxListedProcesses is the maximum number of processes that one message lists.
const maxListedProcesses = 5

// newNoTargetError returns the usage error for a command line that selects no process. On a
// terminal it first prints a table of the processes that use CUDA.
func newNoTargetError() error {
	hint := "sudo gpurec record -p PID -d 10s"
	if fd := int(os.Stderr.Fd()); term.IsTerminal(fd) {
		list := ps.List(true)
		width, _, _ := terminal.Inspect(os.Stderr, terminal.ColorNever)
		if err := printPsTable(os.Stderr, list, time.Now(), width); err != nil {
			return err
		}
		for _, note := range describeMissingData(list) {
			message.Notef("%s", note)
		}
		if len(list.Processes) > 0 {
			hint = fmt.Sprintf("sudo gpurec record -p %d -d 10s", list.Processes[0].Pid)
		}
	}
	return message.Usagef(hint, "nothing to record: use -p PID, --all or -- COMMAND")
}

// findMatchingProcesses sets f.matching to the running processes that --all, --comm and --cgroup
// select. It warns if there are none, and returns an error if the cgroup of --cgroup does not
// exist.
func (f *recordFlags) findMatchingProcesses() error {
	if f.opt.Cgroup != "" {
		if err := process.CheckCgroup(f.opt.Cgroup); err != nil {
			return f.explainStartError(err)
		}
	}
	list := ps.List(false)
	f.matching = slices.DeleteFunc(
		slices.Clone(list.Processes),
		func(p ps.Process) bool { return !f.matchesProcess(&p) },
	)
	if len(f.matching) > 0 {
		return nil
	}
	text, hint := f.noMatchingProcessMessage(list, os.Args)
	if f.describeSelection() == "" {
		message.Notef("%s", text)
	} else {
		message.Warningf("%s", text)
	}
	if hint != "" {
		message.Hintf("%s", hint)
	}
	return nil
}

// noMatchingProcessMessage returns the warning that no running process matches the flags. The text
// lists the processes that use CUDA. The hint is the command line args changed to record those
// processes, "" if there are none.
func (f *recordFlags) noMatchingProcessMessage(list ps.Listing, args []string) (text, hint string) {
	selection, denied := f.describeSelection(), ""
	if list.Denied > 0 {
		denied = "; " + describeDeniedProcesses(list.Denied)
	}
	switch {
	case selection == "":
		return "no process uses CUDA yet" + denied + "; gpurec waits for the first one", ""
	case len(list.Processes) == 0:
		return fmt.Sprintf("no process%s uses CUDA, and no other process does%s; gpurec waits for new "+
			"processes%s", selection, denied, selection), ""
	}
	text = fmt.Sprintf("no process%s uses CUDA; these do: %s%s; gpurec waits for new "+
		"processes%s", selection, f.listProcessNames(list.Processes), denied, selection)
	return text, f.suggestCommand(list.Processes, args)
}

// matchesProcess reports whether --comm and --cgroup select process p.
func (f *recordFlags) matchesProcess(p *ps.Process) bool {
	return (f.opt.Comm == "" || p.Command == f.opt.Comm) && (f.opt.Cgroup == "" || p.IsInCgroup(f.opt.Cgroup))
}

// describeSelection returns the conditions of --comm and --cgroup, such as " named python3 in
// cgroup /jobs", or "" if gpurec records all processes. It follows the noun "process" in a message.
func (f *recordFlags) describeSelection() string {
	text := ""
	if f.opt.Comm != "" {
		text += " named " + f.opt.Comm
	}
	if f.opt.Cgroup != "" {
		text += " in cgroup " + f.opt.Cgroup
	}
	return text
}

// listProcessNames returns the PID and name of up to maxListedProcesses processes, and the number
// of further ones. With --cgroup it adds the cgroup of each process.
func (f *recordFlags) listProcessNames(all []ps.Process) string {
	var names []string
	for _, p := range all {
		text := fmt.Sprintf("%d (%s)", p.Pid, p.Command)
		if f.opt.Cgroup != "" && p.Cgroup != "" {
			text += " in " + p.Cgroup
		}
		names = append(names, text)
	}
	return joinFirstTexts(names)
}

// joinFirstTexts joins up to maxListedProcesses texts with commas and appends the number of further
// ones. The result is one line, whatever processes call themselves.
func joinFirstTexts(texts []string) string {
	more := ""
	if n := len(texts) - maxListedProcesses; n > 0 {
		texts, more = texts[:maxListedProcesses], fmt.Sprintf(" and %d more", n)
	}
	return strings.Map(message.Printable, strings.Join(texts, ", ")) + more
}

// suggestCommand returns the command line args changed so that it matches running processes. It
// replaces --comm or --cgroup by the most frequent value, or selects the first process by its PID.
func (f *recordFlags) suggestCommand(running []ps.Process, args []string) string {
	byPid := fmt.Sprintf("sudo gpurec record -p %d", running[0].Pid)
	switch {
	case f.opt.Comm != "" && f.opt.Cgroup != "":
		return byPid
	case f.opt.Comm != "":
		name := mostFrequentText(running, func(p ps.Process) string { return p.Command })
		if name == "" || strings.ContainsFunc(name, isUnprintableRune) {
			return byPid
		}
		return commandWithFlag(args, "--comm", name)
	}
	path := mostFrequentText(running, func(p ps.Process) string { return p.Cgroup })
	if path == "" || path == "/" || strings.ContainsFunc(path, isUnprintableRune) {
		return byPid
	}
	return commandWithFlag(args, "--cgroup", path)
}

func isUnprintableRune(r rune) bool { return message.Printable(r) != r }

// mostFrequentText returns the most frequent text of the processes. If texts are equally frequent,
// the text of the earliest process wins.
func mostFrequentText(all []ps.Process, text func(ps.Process) string) string {
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

// commandWithFlag returns the command line args with sudo, quoted for a shell, and with a new value
// for flag.
func commandWithFlag(args []string, flag, value string) string {
	words := []string{"sudo", "gpurec"}
	for i := 1; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == flag && i+1 < len(args):
			words = append(words, arg, quoteForShell(value))
			i++
		case strings.HasPrefix(arg, flag+"="):
			words = append(words, flag+"="+quoteForShell(value))
		default:
			words = append(words, quoteForShell(arg))
		}
	}
	return strings.Join(words, " ")
}

var shellSafePattern = regexp.MustCompile(`^[A-Za-z0-9_%+,./:=@-]+$`)

// quoteForShell quotes a text as one shell word. Process names are untrusted input.
func quoteForShell(text string) string {
	if shellSafePattern.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// describeRunningProcesses returns a clause that lists the processes that use CUDA.
func (f *recordFlags) describeRunningProcesses() string {
	list := ps.List(false)
	if len(list.Processes) == 0 {
		return "no process uses CUDA now"
	}
	return "these processes use CUDA: " + f.listProcessNames(list.Processes)
}

// formatPidFlags returns a flag -p for each process, separated by spaces.
func formatPidFlags(pids []int) string {
	flags := make([]string, 0, len(pids))
	for _, pid := range pids {
		flags = append(flags, fmt.Sprintf("-p %d", pid))
	}
	return strings.Join(flags, " ")
}

// announceTargets prints which processes gpurec records from now on, and which data the recording
// will lack.
func (f *recordFlags) announceTargets(session *record.Session) {
	if n, how := session.Probes(); n == 0 {
		message.Notef("waiting for %s to load libcuda.so.1; Ctrl-C stops", f.describeTargets(session))
	} else if f.opt.All && len(f.matching) == 0 {
		message.Notef(
			"waiting for processes%s that use CUDA: %d probes by %s; Ctrl-C stops",
			f.describeSelection(),
			n,
			how,
		)
	} else {
		message.Notef("attached to %s: %d probes by %s; Ctrl-C stops", f.describeTargets(session), n, how)
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

// describeTargets describes the recorded processes. With --all, --comm or --cgroup it returns their
// number. Else it lists the processes of -p or the command, then their children.
func (f *recordFlags) describeTargets(session *record.Session) string {
	if f.opt.All {
		return fmt.Sprintf("every process%s that uses CUDA, %d now", f.describeSelection(), len(f.matching))
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
	return fmt.Sprintf("%s and %d children: %s", text, len(children), joinFirstTexts(children))
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
					if value != "" && !strings.ContainsFunc(strings.Replace(value, "\t", "", 1), isUnprintableRune) &&
						!slices.Contains(values, value) {
						values = append(values, value)
					}
				}
				return values, cobra.ShellCompDirectiveNoFileComp
			},
		)
	}
}

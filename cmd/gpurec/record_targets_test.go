//go:build linux

package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/ps"
)

func TestNoMatchMessageSuggestsProcesses(t *testing.T) {
	testclass.Unit(t)
	python := func(pids ...int) (all []ps.Process) {
		for _, pid := range pids {
			all = append(all, ps.Process{Pid: pid, Command: "python", Cgroup: "/job 1"})
		}
		return all
	}
	train := ps.Process{Pid: 17, Command: "train"}
	hostile := ps.Process{Pid: 18, Command: "a;$(id)'", Cgroup: "/$(id)"}
	steering := ps.Process{Pid: 19, Command: "\x1b[31m\n", Cgroup: "/\x1b"}
	for _, c := range []struct {
		args       string // command line after "gpurec record"
		running    []ps.Process
		text, hint string
	}{
		{"--all", nil, "no process uses CUDA yet; gpurec waits for the first one", ""},
		{"--comm python3", nil, "no process named python3 uses CUDA, and no other process does; gpurec waits for " +
			"new processes named python3", ""},
		{
			"--comm python3 -d 10s", python(4242, 4243), "no process named python3 uses CUDA; these do: 4242 " +
				"(python), 4243 (python); gpurec waits for new processes named python3",
			"sudo gpurec record --comm python -d 10s",
		},
		{"--comm=python3", append([]ps.Process{train}, python(1, 2, 3, 4, 5, 6)...), "1 (python), 2 (python), 3 " +
			"(python), 4 (python) and 2 more;", "sudo gpurec record --comm=python"},
		{"--comm x", []ps.Process{hostile}, "these do: 18 (a;$(id)')", `sudo gpurec record --comm 'a;$(id)'\'''`},
		{"--comm x", []ps.Process{steering}, "these do: 19 (?[31m?);", "sudo gpurec record -p 19"},
		{
			"--cgroup /x -o r.parquet", python(7), "no process in cgroup /x uses CUDA; these do: 7 (python) in /job " +
				"1; gpurec waits for new processes in cgroup /x",
			"sudo gpurec record --cgroup '/job 1' -o r.parquet",
		},
		{"--cgroup /x", []ps.Process{hostile}, "18 (a;$(id)') in /$(id);", "sudo gpurec record --cgroup '/$(id)'"},
		{"--cgroup /x", []ps.Process{train}, "these do: 17 (train);", "sudo gpurec record -p 17"},
		{"--comm python --cgroup /x", python(7), "no process named python in cgroup /x uses CUDA;", "sudo gpurec record -p 7"},
	} {
		f := new(recordFlags)
		args := append([]string{"/usr/bin/gpurec", "record"}, strings.Fields(c.args)...)
		for i, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--comm="); ok {
				f.opt.Comm = value
			} else if arg == "--comm" {
				f.opt.Comm = args[i+1]
			} else if arg == "--cgroup" {
				f.opt.Cgroup = args[i+1]
			}
		}
		text, hint := f.noMatchingProcessMessage(ps.Listing{Processes: c.running}, args)
		if !strings.Contains(text, c.text) || hint != c.hint {
			t.Errorf("%s: %q, hint %q", c.args, text, hint)
		}
	}
}

// TestShellQuote lets a shell parse quoted texts, as the shell would parse a pasted command.
func TestShellQuote(t *testing.T) {
	testclass.Unit(t)
	for _, text := range []string{"plain-1.2/x:y", "", "a b", "it's", `$(id)"\`, "`id`", "~", "*", "a\tb", "ü", "{a,b}", "!x", "-p"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quoteForShell(text)).Output()
		if err != nil || string(out) != text {
			t.Errorf("%q is quoted %s and read as %q: %v", text, quoteForShell(text), out, err)
		}
	}
}

package job

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
)

// PathError is the error for a recording that cannot be read. Err is the error of format.Open or of reading the file.
type PathError struct {
	Path string
	Err  error
}

// Error returns the message of Err, which has the path.
func (e *PathError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *PathError) Unwrap() error { return e.Err }

// DuplicateError is the error for a recording that is there twice.
type DuplicateError struct{ Path, Other string }

// Error names both files.
func (e *DuplicateError) Error() string {
	if e.Path == e.Other {
		return e.Path + " is given twice"
	}
	return fmt.Sprintf("%s is the same recording as %s", e.Path, e.Other)
}

// MixedError is the error for recordings of several jobs.
type MixedError struct {
	Path, Job   string
	Other, Than string // another recording, and its job
}

// Error names a recording of each of two jobs.
func (e *MixedError) Error() string {
	if e.Path == e.Other {
		return fmt.Sprintf("%s has ranks of two jobs, %s and %s", e.Path, e.Job, e.Than)
	}
	return fmt.Sprintf("%s is of job %s, but %s is of job %s", e.Path, e.Job, e.Other, e.Than)
}

// NoRankError is the error for recordings without a process that has a rank. Path is the first of them. With Jobs, no
// process of these jobs has a rank.
type NoRankError struct {
	Path       string
	Recordings int
	Jobs       []string
}

// Error names the first recording.
func (e *NoRankError) Error() string {
	text := e.Path
	if more := e.Recordings - 1; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	of := ""
	if len(e.Jobs) > 0 {
		of = " of job " + units.JoinWithAnd(e.Jobs)
	}
	verb := map[bool]string{true: "has", false: "have"}[e.Recordings == 1]
	return fmt.Sprintf("%s %s no process%s with a rank: neither its environment nor NCCL says one", text, verb, of)
}

// checkDuplicates returns a *DuplicateError if two paths are one file, or two files one recording.
func checkDuplicates(paths []string, list []contents) error {
	type recording struct {
		host, bootID   string
		startNs, endNs int64
		command        string
	}
	known := make(map[recording]int)
	for i := range list {
		m := &list[i].meta
		key := recording{m.Host, m.BootID, m.StartNs, m.EndNs, strings.Join(m.Command, "\x00")}
		if other, ok := known[key]; ok && isSame(paths, list, other, i) {
			return &DuplicateError{paths[i], paths[other]}
		}
		known[key] = i
	}
	return nil
}

// isSame reports whether two recordings with the same times are one: the same file, or the same processes.
func isSame(paths []string, list []contents, a, b int) bool {
	first, err := os.Stat(paths[a])
	second, otherErr := os.Stat(paths[b])
	if err == nil && otherErr == nil && os.SameFile(first, second) {
		return true
	}
	for pid := range list[a].facts.Processes {
		if _, ok := list[b].facts.Processes[pid]; !ok {
			return false
		}
	}
	return len(list[a].facts.Processes) == len(list[b].facts.Processes)
}

// checkOneJob returns a *MixedError if members belong to different jobs.
func checkOneJob(j *Job) error {
	var first *Member
	byRecording := slices.Clone(j.Members)
	slices.SortStableFunc(byRecording, func(a, b Member) int { return a.Recording - b.Recording })
	for i := range byRecording {
		m := &byRecording[i]
		switch {
		case m.Identity.Job == "":
		case first == nil:
			first = m
		case m.Identity.Job != first.Identity.Job && !sameSlurmJob(first, m):
			return &MixedError{
				Path: j.Paths[first.Recording], Job: first.Identity.Job,
				Other: j.Paths[m.Recording], Than: m.Identity.Job,
			}
		}
	}
	return nil
}

// sameSlurmJob reports whether two members have the same number of a Slurm job.
func sameSlurmJob(a, b *Member) bool {
	return a.Identity.SlurmJob != "" && a.Identity.SlurmJob == b.Identity.SlurmJob
}

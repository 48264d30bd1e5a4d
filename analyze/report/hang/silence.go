package hang

import (
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/format"
)

// SilentVerdict is the state of a process that made no call in the window, or that was busy and then made no more. The
// states of its threads prove it.
type SilentVerdict struct {
	threadstate.Member
	// State is StateHanging, or StateWaiting. Ranks wait if none of them is in a call of CUDA or NCCL, or reduces
	// data: a server without requests looks the same.
	State   HangState
	SinceNs int64 // minimum time that the thread has been in its current state
	// IsAwaited reports that other ranks of its job wait, and this one does not: it is the cause.
	IsAwaited bool
}

// wait is how surely a thread waits without progress.
type wait int

const (
	waitNone  wait = iota // nothing shows that it waits for others: it may be idle
	waitMaybe             // in a collective outside of CUDA, or for a lock whose owner may wait for input
	waitStuck             // in a call of CUDA or NCCL, in a reduction, or for a lock whose owner does not run
)

// statesOfWaits are the states of processes by the wait of their thread.
var statesOfWaits = [...]HangState{waitNone: StateAlive, waitMaybe: StateWaiting, waitStuck: StateHanging}

// ClassifySilent returns the verdicts on processes without calls that hang or wait for another rank, the awaited ones
// first, then by pid. verdicts are those on the processes with calls. The idle ones among them have a verdict, too, if
// they are ranks or hang, and ClassifySilent raises their states there. Launchers, helpers of ranks, and processes without recorded states of
// threads have no verdict. It returns errors of reading the recording.
func (s *Scan) ClassifySilent(verdicts []ProcessVerdict) ([]SilentVerdict, error) {
	if err := s.readSnapshots(); err != nil {
		return nil, err
	}
	preferred := s.idleProcesses(verdicts)
	for _, pid := range s.processesWithoutCalls() {
		preferred[pid] = 0
	}
	members := s.members(preferred)
	jobs := s.waitsOfJobs(members, verdicts)
	var list []SilentVerdict
	for _, m := range members {
		v := SilentVerdict{Member: m, SinceNs: s.sinceNs(m.Thread)}
		how := s.waitOf(&m)
		if inJob := jobs[m.Job]; v.isRank() && inJob > waitNone {
			v.IsAwaited = how == waitNone || !waitsForRanks(m.Thread)
			how = max(how, inJob)
		}
		if !v.isRank() && s.Processes[m.Snapshot.Pid] != nil && how < waitStuck {
			continue // an idle process, such as a server without requests
		}
		if v.State = statesOfWaits[how]; v.State < StateAlive {
			list = append(list, v)
		}
	}
	slices.SortStableFunc(list, func(a, b SilentVerdict) int { return a.order() - b.order() })
	raiseStates(verdicts, list)
	return list, nil
}

// idleProcesses returns the idle processes that have a snapshot after their last call, with the preferred thread of each:
// the one that made most calls, 0 for ranks.
func (s *Scan) idleProcesses(verdicts []ProcessVerdict) map[int32]int32 {
	preferred := make(map[int32]int32)
	for i := range verdicts {
		p := &verdicts[i]
		pid := p.History.Pid
		snapshot, _ := s.mainThread(pid, 0)
		if p.State != StateIdle || snapshot == nil || snapshot.AtNs < p.History.lastNs {
			continue
		}
		if preferred[pid] = 0; s.T.Facts.RankText(pid) == "" {
			preferred[pid] = preferredThread(p)
		}
	}
	return preferred
}

// raiseStates gives processes the states that the states of their threads prove.
func raiseStates(verdicts []ProcessVerdict, list []SilentVerdict) {
	silent := make(map[int32]*SilentVerdict)
	for i := range list {
		silent[list[i].Snapshot.Pid] = &list[i]
	}
	for i := range verdicts {
		p := &verdicts[i]
		if v := silent[p.History.Pid]; v != nil {
			p.State, p.IsSilent = v.State, true
			if !v.isRank() {
				p.silentTid = v.Thread.Tid
			}
		}
	}
	sortVerdicts(verdicts)
}

// isRank reports whether the process is a rank of a job.
func (v *SilentVerdict) isRank() bool { return v.Rank != threadstate.UnknownRank }

// order puts awaited ranks first.
func (v *SilentVerdict) order() int {
	if v.IsAwaited {
		return 0
	}
	return 1
}

// waitsOfJobs returns, by job, how surely its ranks wait for others: as the one that proves most.
func (s *Scan) waitsOfJobs(members []threadstate.Member, verdicts []ProcessVerdict) map[string]wait {
	jobs := make(map[string]wait)
	for i := range members {
		if m := &members[i]; m.Rank != threadstate.UnknownRank && waitsForRanks(m.Thread) {
			jobs[m.Job] = max(jobs[m.Job], s.waitOf(m))
		}
	}
	for i := range verdicts {
		p := &verdicts[i]
		if p.State == StateHanging && s.T.Facts.RankText(p.History.Pid) != "" {
			jobs[s.T.Facts.Processes[p.History.Pid].Identity.Job] = waitStuck
		}
	}
	return jobs
}

// waitsForRanks reports whether a thread is in a call that can wait for other ranks.
func waitsForRanks(t *threadstate.Thread) bool { return t.Wait.CUDACall != "" || t.Collective() != "" }

// waitOf returns how surely the thread of a process waits without progress.
func (s *Scan) waitOf(m *threadstate.Member) wait {
	t := m.Thread
	if s.sinceNs(t) < s.longNs {
		return waitNone
	}
	switch collective := t.Collective(); {
	case t.Wait.CUDACall != "" && !onlyAsks(t.Wait.CUDACall), strings.HasPrefix(collective, "nccl"), t.Reduces():
		return waitStuck
	case collective != "":
		return waitMaybe
	case slices.Contains([]string{format.ReasonLock, format.ReasonGIL, format.ReasonImportLock}, t.Wait.Reason):
		return s.waitForOwner(m)
	}
	return waitNone
}

// onlyAsks reports whether a CUDA call returns at once: such a call at the time of a snapshot is no wait.
func onlyAsks(call string) bool {
	return strings.HasSuffix(catalog.BaseFunctionName(call), "Query") || strings.Contains(call, "Get")
}

// waitForOwner returns how surely a thread waits for a lock that is not released. The owner of a lock may compute, or
// wait for the next request of a server.
func (s *Scan) waitForOwner(m *threadstate.Member) wait {
	i := slices.IndexFunc(m.Snapshot.Threads, func(t threadstate.Thread) bool {
		return t.Tid == m.Thread.Wait.OwnerTid
	})
	if i < 0 || m.Thread.Wait.OwnerTid == 0 {
		return waitNone
	}
	switch owner := &m.Snapshot.Threads[i]; {
	case isRunning(owner), s.sinceNs(owner) < s.longNs:
		return waitNone
	case waitsForInput(owner):
		return waitMaybe
	}
	return waitStuck
}

// isRunning reports whether a thread runs, or could run.
func isRunning(t *threadstate.Thread) bool {
	return t.State == format.StateRunning || t.State == format.StateRunnable
}

// waitsForInput reports whether a thread waits for data from outside of the process, as a server without requests does.
func waitsForInput(t *threadstate.Thread) bool {
	reasons := []string{format.ReasonPoll, format.ReasonPipe, format.ReasonNetwork}
	return slices.Contains(reasons, t.Wait.Reason) && t.Wait.CUDACall == ""
}

// isLauncher reports whether a process only waits for its children, such as torchrun: it makes no CUDA call, and waits
// for the end of a process or started processes with other ranks. Another process of the recording is a rank or uses
// CUDA: otherwise the program itself hangs in the wait for a child.
func (s *Scan) isLauncher(pid int32, snapshot *threadstate.Snapshot) bool {
	if s.usesCUDA(pid) {
		return false
	}
	rank, isRank := s.T.Facts.RankOfProcess(pid)
	waitsForChild := func(t threadstate.Thread) bool { return t.Tid == pid && t.Wait.Reason == format.ReasonChild }
	if !isRank && slices.ContainsFunc(snapshot.Threads, waitsForChild) && s.hasWorkerBeside(pid) {
		return true
	}
	for child := range s.T.Facts.Processes {
		of, isRankToo := s.T.Facts.RankOfProcess(child)
		if s.T.Facts.Processes[child].ParentPid == pid && isRankToo && (!isRank || of != rank) {
			return true
		}
	}
	return false
}

// usesCUDA reports whether a process makes calls of CUDA in the window, or is in one at its last snapshot.
func (s *Scan) usesCUDA(pid int32) bool {
	if s.Processes[pid] != nil {
		return true
	}
	snapshots := s.snapshots[pid]
	return len(snapshots) > 0 && slices.ContainsFunc(
		snapshots[len(snapshots)-1].Threads, func(t threadstate.Thread) bool { return t.Wait.CUDACall != "" })
}

// hasWorkerBeside reports whether another process is a rank or uses CUDA.
func (s *Scan) hasWorkerBeside(pid int32) bool {
	for other := range s.T.Facts.Processes {
		if _, isRank := s.T.Facts.RankOfProcess(other); other != pid && (isRank || s.usesCUDA(other)) {
			return true
		}
	}
	return false
}

// IsProven reports whether processes with verdicts of one state are worth a hit: they hang, or a rank for which others
// wait is not known to wait for input.
func IsProven(list []SilentVerdict) bool {
	return slices.ContainsFunc(list, func(v SilentVerdict) bool {
		return v.State == StateHanging || v.IsAwaited && !waitsForInput(v.Thread) &&
			v.Thread.Wait.Reason != format.ReasonCondition
	})
}

// OfState returns the verdicts with a state.
func OfState(list []SilentVerdict, state HangState) []SilentVerdict {
	return slices.DeleteFunc(slices.Clone(list), func(v SilentVerdict) bool { return v.State != state })
}

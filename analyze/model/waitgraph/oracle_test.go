package waitgraph

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// observe makes the Job that a recorder sees.
func (s *simJob) observe() (*Job, []int) {
	job := &Job{LongNs: 10 * second}
	index := make([]int, s.ranks)
	var ranks []int
	for rank := range s.ranks {
		index[rank] = NotRecorded
		if s.recorded[rank] {
			index[rank] = len(ranks)
			ranks = append(ranks, rank)
		}
	}
	for _, members := range s.communicators {
		c := Communicator{Entered: make([]int64, len(members))}
		for _, m := range members {
			c.Members = append(c.Members, index[m])
		}
		job.Communicators = append(job.Communicators, c)
	}
	for _, rank := range ranks {
		job.Ranks = append(job.Ranks, s.observeRank(rank, job))
		job.EndNs = max(job.EndNs, job.Ranks[len(job.Ranks)-1].LastNs)
	}
	job.EndNs += 100 * second
	return job, ranks
}

// observeRank returns the calls of a rank as a recording has them: some ends are unknown.
func (s *simJob) observeRank(rank int, job *Job) Rank {
	r := Rank{LastNs: s.clock[rank]}
	waits := s.hostWaits(rank)
	switch {
	case waits && !s.pollsOnly:
		r.Host = HostWaits
	case !waits && s.random.IntN(2) == 0:
		r.Host = HostElsewhere
	}
	if s.fault == faultDie && rank == s.culprit {
		r.DeadNs = s.deadNs
	}
	last := make(map[int64]int)
	for i, c := range s.programs[rank][:s.at[rank]] {
		if c.sync {
			continue
		}
		o := Operation{
			Signature:    c.signature,
			Communicator: c.communicator,
			Number:       c.number,
			Order:        int64(i + 1),
			Stream:       c.stream,
			StartNs:      c.startNs,
		}
		switch {
		case c.endNs != 0 && (s.gpuTimes || c.covered):
			o.Progress = Done
		case c.endNs == 0 && s.gpuTimes:
			o.Progress = Unfinished
		}
		if c.group != 0 && len(r.Operations) > 0 && s.programs[rank][i-1].group == c.group {
			o.Order = r.Operations[len(r.Operations)-1].Order
		}
		last[c.stream] = len(r.Operations)
		r.Operations = append(r.Operations, o)
		if !o.isPeerToPeer() {
			comm := &job.Communicators[c.communicator]
			comm.Entered[slices.Index(s.communicators[c.communicator], rank)] = c.number
		}
	}
	if r.Host == HostWaits {
		next := s.programs[rank][s.at[rank]]
		for stream, i := range last {
			if (next.sync && stream == next.stream || !next.sync) && !s.ended(rank, i) {
				r.Operations[i].Progress = Unfinished
			}
		}
	}
	return r
}

// ended reports whether operation i of a rank had ended.
func (s *simJob) ended(rank, i int) bool {
	for _, c := range s.programs[rank][:s.at[rank]] {
		if c.sync {
			continue
		}
		if i == 0 {
			return c.endNs != 0
		}
		i--
	}
	return true
}

// hostWaits reports whether the host of a rank waits for its GPU.
func (s *simJob) hostWaits(rank int) bool {
	if s.at[rank] == len(s.programs[rank]) {
		return false
	}
	return rank != s.culprit || s.at[rank] != s.position || s.fault != faultDie && s.fault != faultHostHang
}

// anyWaits reports whether an operation has not ended on a rank other than a dead one.
func (s *simJob) anyWaits() bool {
	for rank := range s.ranks {
		if s.fault == faultDie && rank == s.culprit {
			continue
		}
		for _, c := range s.programs[rank][:s.at[rank]] {
			if !c.sync && c.endNs == 0 {
				return true
			}
		}
	}
	return false
}

// outcome of a job: whether the verdict is right, unknown or wrong.
type outcome int

const (
	right outcome = iota
	unknown
	wrong
)

// judge compares a verdict with the fault.
func (s *simJob) judge(v *Verdict, ranks []int) outcome {
	if len(v.Faults) == 0 {
		if s.fault == faultNone || !s.anyWaits() {
			return right
		}
		return unknown
	}
	if !s.anyWaits() || s.fault == faultNone {
		return wrong
	}
	f := &v.Faults[0]
	culprits := make([]int, len(f.Ranks))
	for i, r := range f.Ranks {
		culprits[i] = ranks[r]
	}
	only := func(list []int) bool { return len(list) == 1 && list[0] == s.culprit }
	var good bool
	switch f.Kind {
	case Died:
		good = s.fault == faultDie && only(culprits)
	case Missing:
		called := make([]int, 0)
		for _, r := range f.Waits[0].Called {
			called = append(called, ranks[r])
		}
		shifted := s.fault == faultSkip || s.fault == faultExtra
		good = s.fault == faultHostHang && only(culprits) || shifted && (only(culprits) || only(called))
	case Mismatch:
		good = (s.fault == faultSkip || s.fault == faultExtra || s.fault == faultChange) &&
			(only(culprits) || len(culprits) == 0 && slices.ContainsFunc(f.Sides, func(side Side) bool {
				return slices.ContainsFunc(side.Ranks, func(r int) bool { return ranks[r] == s.culprit })
			}))
		if len(culprits) == 0 && !good {
			return unknown
		}
	case Cycle:
		good = s.fault == faultSwap && slices.Contains(culprits, s.culprit) ||
			(s.fault == faultSkip || s.fault == faultExtra) && slices.Contains(culprits, s.culprit)
	case Stuck:
		good = s.fault == faultStuck
	case Unrecorded, UnknownPeer:
		return unknown
	}
	switch {
	case good:
		return right
	case f.Guessed:
		return unknown
	}
	return wrong
}

// faultNames are for messages.
var faultNames = [faultKinds]string{"none", "die", "host hang", "skip", "extra", "change", "swap", "stuck"}

// visible reports whether a recorder can know that a stuck operation has not ended.
func (s *simJob) visible() bool { return s.fault != faultStuck || s.gpuTimes || !s.pollsOnly }

func TestRandomJobs(t *testing.T) {
	testclass.Unit(t)
	const seeds = 500
	for fault := range faultKinds {
		var all, known [wrong + 1]int
		for seed := range uint64(seeds) {
			s := newSimJob(seed*97+uint64(fault), fault)
			s.execute()
			job, ranks := s.observe()
			verdict := Solve(job)
			o := s.judge(verdict, ranks)
			all[o]++
			if !slices.Contains(s.recorded, false) && s.anyWaits() && s.visible() {
				known[o]++
			}
			if o == wrong {
				t.Logf("%s, seed %d: culprit %d of %d, faults %+v", faultNames[fault], seed, s.culprit, s.ranks,
					verdict.Faults)
			}
		}
		t.Logf("%-10s right %d, unknown %d, wrong %d; complete and hanging: %d, %d, %d", faultNames[fault],
			all[right], all[unknown], all[wrong], known[right], known[unknown], known[wrong])
		if limit := seeds / 200; all[wrong] > limit || fault == faultNone && all[wrong] > 0 {
			t.Errorf("%s: %d wrong verdicts", faultNames[fault], all[wrong])
		}
		if known[right]*100 < 99*(known[right]+known[unknown]+known[wrong]) {
			t.Errorf("%s: too few right verdicts", faultNames[fault])
		}
	}
}

// TestRelativeNumbers checks that with numbers that cannot be compared, no rank is accused.
func TestRelativeNumbers(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(800) {
		s := newSimJob(seed, faultKind(seed%uint64(faultKinds)))
		s.execute()
		job, _ := s.observe()
		for i := range job.Communicators {
			job.Communicators[i].Relative, job.Communicators[i].RelativePeers = true, true
		}
		for rank := range job.Ranks {
			shift := rand.New(rand.NewPCG(seed, uint64(rank))).Int64N(5)
			for i := range job.Ranks[rank].Operations {
				job.Ranks[rank].Operations[i].Number += shift
			}
		}
		for _, f := range Solve(job).Faults {
			if f.Kind != UnknownPeer && !f.Guessed {
				t.Errorf("seed %d: %+v", seed, f)
			}
		}
	}
}

// TestMovingJobs checks that ranks that made calls a moment ago are not hung.
func TestMovingJobs(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(400) {
		s := newSimJob(seed, faultKind(seed%uint64(faultKinds)))
		s.execute()
		job, _ := s.observe()
		job.EndNs -= 95 * second
		if v := Solve(job); len(v.Faults) > 0 {
			t.Errorf("seed %d: %+v", seed, v.Faults)
		}
	}
}

// TestLateDeaths checks that a death after the watchdog's time is a consequence of the hang, not its
// cause.
func TestLateDeaths(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(400) {
		s := newSimJob(seed*97+uint64(faultHostHang), faultHostHang)
		s.execute()
		job, ranks := s.observe()
		for i := range job.Ranks {
			job.Ranks[i].DeadNs = job.EndNs - 20*second + int64(i)
			if ranks[i] == s.culprit {
				job.Ranks[i].DeadNs = job.EndNs - 21*second
			}
		}
		verdict := Solve(job)
		for _, f := range verdict.Faults {
			if f.Kind == Died {
				t.Errorf("seed %d: %+v", seed, f)
			}
		}
		if s.judge(verdict, ranks) == wrong {
			t.Errorf("seed %d: %+v", seed, verdict.Faults)
		}
	}
}

package job

import "github.com/gpurec/gpurec/format"

// Job is a set of recordings of the processes of one job. Its methods are not safe for concurrent use, but for Open.
type Job struct {
	Paths      []string    // one for each recording
	Recordings []Recording // by the index of Paths
	Hosts      []Host
	Members    []Member // ordered by rank, then by host and pid
	// WithoutRank are the indexes of recordings that have no process with a rank.
	WithoutRank []int
}

// Recording describes a recording of a job.
type Recording struct {
	Host int // index in Job.Hosts
	// ShiftNs is the time on the clock of the recording minus that on the clock of its host at the same moment. The
	// clock of a host is that of its first recording in the job.
	ShiftNs        int64
	StartNs, EndNs int64 // Unix ns on the clock of the recording
}

// Host is a machine of a job. Recordings with the same boot ID are of the same host.
type Host struct {
	Name, BootID string
}

// Member is a process of a job.
type Member struct {
	Recording int // index in Job.Paths
	Host      int // index in Job.Hosts
	Pid       int32
	// Rank counts the processes of the job from 0, UnknownRank if nothing says it. WorldSize is their number, 0:
	// unknown. RankSource says where the rank is from, such as "env RANK" or RankByNCCL.
	Rank, WorldSize int
	RankSource      string
	Identity        format.Identity
	ContainerID     string
	// Label names the member in reports: "3", or "pid 4242" without a rank. Labels of a job differ: those of equal
	// ranks have the pid, and the host if the pids are equal too.
	Label string
}

// UnknownRank is the Rank of members whose rank is unknown.
const UnknownRank = -1

// RankByNCCL is the RankSource of ranks in the largest communicator of the job.
const RankByNCCL = "nccl"

// Offset bounds the difference between the clocks of two hosts, in ns. The clock of a recording is that of its
// column start_ns. The zero Offset is exact: one host.
type Offset struct {
	// LowNs ≤ time on the second host − time on the first host at the same moment ≤ HighNs.
	LowNs, HighNs int64
	// Source says what bounds it: "same host", "ntp", "collectives" or "unknown". With "unknown" there is no bound.
	Source string
}

// MembersOf returns the members of a recording, in the order of Members.
func (j *Job) MembersOf(recording int) (list []*Member) {
	for i := range j.Members {
		if j.Members[i].Recording == recording {
			list = append(list, &j.Members[i])
		}
	}
	return list
}

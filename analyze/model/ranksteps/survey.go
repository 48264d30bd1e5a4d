package ranksteps

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/collective"
	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/straggler"
)

// Survey has the steps of the ranks of a job, and the operations of their communicators.
type Survey struct {
	Job    *job.Job
	Ranks  []Rank             // by member of the job
	Series []straggler.Series // by member of the job; without steps if none were found
	// HostSeries are Series with host times only, for ranks whose Series has starts of kernels on the GPU. They show
	// a host that is late for an operation without a known start. nil: Series has no such ranks.
	HostSeries []straggler.Series
	// Operations are the operations of all communicators, those with the most bytes first.
	Operations []Operation
	// Steps is the number of steps of the rank with the most.
	Steps int
	// RanksWithGPUTimes is the number of ranks whose GPU times are known.
	RanksWithGPUTimes int
}

// Rank describes how the steps of a rank were found.
type Rank struct {
	// Communicator is the identity of the communicator that numbers the steps, 0 if there are no steps.
	Communicator int64
	// Marker names the operation at which steps begin, such as "AllReduce 25.0 MiB".
	Marker string
	// PerStep is the median number of collectives of that communicator from one step to the next.
	PerStep int
	// WindowSize is the number of collectives of a step if no operation repeats, else 0.
	WindowSize int64
	// ByLaunches reports that steps begin at launches that repeat, because the recording has no collectives. Then
	// Communicator is 0.
	ByLaunches bool
	// Collectives is the number of collectives of all communicators, Timed the number with GPU times.
	Collectives, Timed int64
	// TimedNs is the time of the steps whose collectives all have GPU times, ExposedNs the part of it in which only
	// collectives ran on the GPU.
	TimedNs, ExposedNs int64
	// GPUMissing explains why a rank has no GPU times, "" if it has.
	GPUMissing string
}

// Operation sums up equal operations of a communicator.
type Operation struct {
	Communicator int64 // identity, 0 if unknown
	Name         string
	Size         int // ranks of the communicator, 0 if unknown
	Function     collective.Function
	DataType     uint8 // index in format.DataTypes
	Bytes        int64 // of one operation, as collective.Operation.TotalBytes
	Members      []int // members of the job that called it, ordered
	Count        int64 // of the member with the most
	// TransferNs is the median over operations of the shortest time of its kernel on any rank, ns. It is the time
	// from the last arrival to the end. If a step has several such operations, it is that of the shortest of them,
	// because the next operation bounds the end of others late. 0: unknown.
	TransferNs float64
	// WaitNs is the mean time of its kernels a step and member beyond TransferNs, and ExposedNs the mean time in
	// which nothing else ran on the GPU, ns. Both are valid if TransferNs is.
	WaitNs, ExposedNs float64
	// Transfers are the shortest times by operation, in program order; 0: unknown. It has at most maxTransfers.
	Transfers []Transfer
}

// Transfer is the time of one operation.
type Transfer struct {
	Sequence int64
	AtNs     int64 // Unix ns, on the clock of one of its ranks
	Ns       int64
	Ranks    int // with a known time
	Place    int // among the equal operations of its step, from 0
}

// hostSeries returns HostSeries, which it makes if necessary.
func (s *Survey) hostSeries() []straggler.Series {
	if s.HostSeries == nil {
		s.HostSeries = slices.Clone(s.Series)
		for i := range s.HostSeries {
			s.HostSeries[i].Steps = nil
		}
	}
	return s.HostSeries
}

// isOneHost reports whether some ranks are on one host.
func (s *Survey) isOneHost(group []*rank) bool {
	members := s.Job.Members
	return !slices.ContainsFunc(
		group,
		func(k *rank) bool { return members[k.member].Host != members[group[0].member].Host },
	)
}

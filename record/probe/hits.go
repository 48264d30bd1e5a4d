//go:build linux

package probe

import "github.com/gpurec/gpurec/bpf"

// ThreadHits counts the probe hits of a thread at entries and returns, by kind of call. The counts wrap
// around. Others have Collectives, the calls of NCCL, too.
type ThreadHits struct {
	Launches, Allocator, Others, Collectives uint32
	// IsEngine is set for threads of PyTorch's autograd engine. They work while another thread of the process waits in
	// backward().
	IsEngine bool
}

// ReadThreadHits sets hits to the counts of all threads that have called CUDA, by pid<<32|tid.
func (p *Probes) ReadThreadHits(hits map[uint64]ThreadHits) {
	clear(hits)
	var (
		id uint64
		t  bpf.CudaThread
	)
	for threads := p.Objects.Threads.Iterate(); threads.Next(&id, &t); {
		collectives := t.Hits[bpf.CudaHitKindHIT_COLLECTIVE]
		hits[id] = ThreadHits{
			Launches:    t.Hits[bpf.CudaHitKindHIT_LAUNCH],
			Allocator:   t.Hits[bpf.CudaHitKindHIT_ALLOCATOR],
			Others:      t.Hits[bpf.CudaHitKindHIT_OTHER] + collectives,
			Collectives: collectives,
			IsEngine:    bpf.CudaEngineRole(t.Engine) == bpf.CudaEngineRoleENGINE_THREAD,
		}
	}
}

// ReadCountedCalls returns the number of calls of functions that are only counted, such as
// cuEventQuery. Their hits belong to no thread.
func (p *Probes) ReadCountedCalls() (calls int64) {
	for cookie := range bpf.NumDriverCookies() {
		call, _, _, _ := bpf.FunctionByCookie(uint16(cookie))
		if !call.CountOnly {
			continue
		}
		var cpus []uint64
		if p.Objects.Counts.Lookup(uint32(cookie), &cpus) != nil {
			continue
		}
		for _, n := range cpus {
			calls += int64(n)
		}
	}
	return calls
}

package analyzetest

import (
	"math/rand/v2"

	"github.com/gpurec/gpurec/format"
)

// CacheProgram makes requests to a simulated PyTorch allocator in steps of 100 ms. Its requests
// have the call site "encode_batch (infer.py:33)".
type CacheProgram struct {
	*TorchAllocator
	recording *TestRecording
}

// CacheSite is the call site of the requests of a CacheProgram.
const CacheSite = "encode_batch (infer.py:33)"

// NewCacheProgram returns a program of process 42 on device 0, whose driver has 64 GiB.
func NewCacheProgram(recording *TestRecording, conf TorchConf) *CacheProgram {
	w := NewTorchAllocator(recording, rand.New(rand.NewPCG(1, 1)), 42, 0, conf)
	w.Capacity, w.nextVA = 64<<30, 0x790000000000
	return &CacheProgram{w, recording}
}

// RunSteps runs a step every 100 ms, from 2 s to 58 s. step gets the number of the step.
func (p *CacheProgram) RunSteps(step func(i int64)) {
	for i := range int64(560) {
		p.Now = 2*Second + i*100*Ms
		step(i)
	}
}

// Request allocates a block on a stream, in a pool.
func (p *CacheProgram) Request(bytes, stream, pool int64) *TorchBlock {
	b := p.AllocBlock(bytes, TorchSegment{Stream: stream, Pool: pool})
	SetStackAndSite(b.Row, 1, CacheSite)
	return b
}

// UseBriefly allocates blocks on the default stream, and frees them after that.
func (p *CacheProgram) UseBriefly(sizes ...int64) {
	var blocks []*TorchBlock
	for _, bytes := range sizes {
		blocks = append(blocks, p.Request(bytes, 0, 0))
	}
	for _, b := range blocks {
		p.FreeBlock(b)
	}
}

// RequestLonger uses blocks that are longer than all before in every fifth step, until step last.
func (p *CacheProgram) RequestLonger(last int64) {
	p.RunSteps(func(i int64) {
		bytes := 10*Mib + min(i, last)/5*Mib
		p.UseBriefly(bytes, bytes)
	})
}

// RequestOnFreshStreams uses two buffers on a new stream in every tenth step.
func (p *CacheProgram) RequestOnFreshStreams() {
	p.RunSteps(func(i int64) {
		if i%10 == 0 {
			p.useInPool(0x100+i, 0)
		}
	})
}

// RequestInFreshPools uses two buffers in a new private pool in every tenth step.
func (p *CacheProgram) RequestInFreshPools() {
	p.RunSteps(func(i int64) {
		if i%10 == 0 {
			p.useInPool(0x100, 1+i/10)
		}
	})
}

func (p *CacheProgram) useInPool(stream, pool int64) {
	a, b := p.Request(64*Mib, stream, pool), p.Request(64*Mib, stream, pool)
	p.FreeBlock(a)
	p.FreeBlock(b)
}

// ReleaseCacheSite is the call site of the frees of EmptyCacheInSteps.
const ReleaseCacheSite = "release_cache (train.py:12)"

// EmptyCacheInSteps returns all unused segments to the driver at the end of each of n steps. A step
// uses 10 segments and takes stepNs, at least 11 ms. Each driver call takes 100 µs.
func (p *CacheProgram) EmptyCacheInSteps(n, stepNs int64) {
	p.Driver = true
	for i := range n {
		p.Now = 2*Second + i*stepNs
		first := len(p.recording.Rows)
		p.UseBriefly(20*Mib, 20*Mib, 20*Mib, 20*Mib, 20*Mib, 20*Mib, 20*Mib, 20*Mib, 20*Mib, 20*Mib)
		p.emptyCache()
		for k, r := range p.recording.Rows[first:] {
			r.StartNs = Epoch + 2*Second + i*stepNs + int64(k)*150*Us
			switch r.Kind {
			case format.KindAlloc:
				SetStackAndSite(r, 7, CacheSite).DurNs = 100 * Us
			case format.KindFree:
				SetStackAndSite(r, 8, ReleaseCacheSite).DurNs = 100 * Us
			}
		}
	}
}

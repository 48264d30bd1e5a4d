//go:build linux

package memory

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/torchallocator"
)

// newMemory sums up a state. It lists at most top sizes; 0 lists all.
func newMemory(s *torchallocator.State, top int) *Memory {
	m := &Memory{
		AllocatedBytes: toSigned(s.AllocatedBytes), ReservedBytes: toSigned(s.ReservedBytes),
		LimitBytes: toSigned(s.LimitBytes), Proof: newProof(s),
	}
	pools, sizes := make(map[poolKey]*Pool), make(map[uint64]*Size)
	for i := range s.Segments {
		m.addSegment(&s.Segments[i], pools, sizes)
	}
	m.Pools = []Pool{}
	for _, key := range slices.SortedFunc(maps.Keys(pools), func(a, b poolKey) int {
		return cmp.Or(cmp.Compare(pools[b].ReservedBytes, pools[a].ReservedBytes), compareKeys(a, b))
	}) {
		m.Pools = append(m.Pools, *pools[key])
	}
	m.listSizes(sizes, top)
	slices.SortFunc(m.Sparse, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.UsedBytes, b.UsedBytes),
			cmp.Compare(a.Address, b.Address))
	})
	m.Sparse = append([]Segment{}, m.Sparse[:min(len(m.Sparse), maxSparse)]...)
	return m
}

// maxSparse is the number of segments that are listed.
const maxSparse = 5

// poolKey identifies a Pool.
type poolKey struct {
	id                    torchallocator.PoolID
	stream                uint64
	isSmall, isExpandable bool
}

func compareKeys(a, b poolKey) int {
	return cmp.Or(cmp.Compare(a.id[0], b.id[0]), cmp.Compare(a.id[1], b.id[1]), cmp.Compare(a.stream, b.stream),
		cmp.Compare(a.segmentsName(), b.segmentsName()))
}

// segmentsName returns the kind of the pool's segments, as in reports.
func (k poolKey) segmentsName() string {
	name := "large"
	if k.isSmall {
		name = "small"
	}
	if k.isExpandable {
		name += ", expandable"
	}
	return name
}

func (k poolKey) newPool() *Pool {
	return &Pool{
		Pool: caching.FormatPool(record.PoolNumber(k.id)), ID: k.id, SegmentsOf: k.segmentsName(),
		Stream: query.StreamName(int64(k.stream)),
	}
}

// addSegment adds the blocks of a segment to all sums.
func (m *Memory) addSegment(s *torchallocator.Segment, pools map[poolKey]*Pool, sizes map[uint64]*Size) {
	key := poolKey{s.Pool, s.Stream, s.IsSmall, s.IsExpandable}
	p := pools[key]
	if p == nil {
		p = key.newPool()
		pools[key] = p
	}
	p.Segments++
	p.ReservedBytes += toSigned(s.Bytes)
	blocks, used := int64(0), int64(0)
	for i := range s.Blocks {
		b := &s.Blocks[i]
		if b.Use == torchallocator.Cached {
			m.addFree(s, b, p)
			continue
		}
		blocks++
		used += toSigned(b.Bytes)
		m.addBlock(b, p)
		addSize(sizes, b)
	}
	if s.IsExpandable {
		m.MappedRanges++
	} else {
		m.Segments++
		m.addSparse(s, p, blocks, used)
	}
	if blocks == 0 && s.Pool == (torchallocator.PoolID{}) {
		m.UnusedSegments++
		m.UnusedSegmentBytes += toSigned(s.Bytes)
	}
}

// addFree adds a free block.
func (m *Memory) addFree(s *torchallocator.Segment, b *torchallocator.Block, p *Pool) {
	bytes := toSigned(b.Bytes)
	m.FreePieces++
	m.FreeBytes += bytes
	m.LargestFree = max(m.LargestFree, bytes)
	p.FreeBytes += bytes
	p.LargestFree = max(p.LargestFree, bytes)
	if r := largestRequest(s.IsSmall, bytes); s.Pool == (torchallocator.PoolID{}) && r > m.LargestRequest {
		m.LargestRequest, m.LargestRequestStream = r, p.Stream
	}
}

// largestRequest returns the largest request that a free block can take. Requests above a limit use segments for large
// blocks, and others use those for small ones.
func largestRequest(isSmall bool, bytes int64) int64 {
	switch {
	case isSmall:
		return min(bytes, caching.MaxSmallRequestBytes)
	case bytes <= caching.MaxSmallRequestBytes:
		return 0
	}
	return bytes
}

// addBlock adds a block in use.
func (m *Memory) addBlock(b *torchallocator.Block, p *Pool) {
	bytes := toSigned(b.Bytes)
	p.Blocks++
	m.RequestedBytes += toSigned(b.Requested)
	if b.Use == torchallocator.AwaitsStream {
		m.AwaitingBlocks++
		m.AwaitingBytes += bytes
		p.AwaitingBytes += bytes
		return
	}
	m.AllocatedBlocks++
	p.AllocatedBytes += bytes
}

func addSize(sizes map[uint64]*Size, b *torchallocator.Block) {
	size := sizes[b.Requested]
	if size == nil {
		size = &Size{RequestedBytes: toSigned(b.Requested)}
		sizes[b.Requested] = size
	}
	size.Blocks++
	size.Bytes += toSigned(b.Bytes)
}

// addSparse adds a segment to the sparse ones if blocks use less than a quarter of it.
func (m *Memory) addSparse(s *torchallocator.Segment, p *Pool, blocks, used int64) {
	bytes := toSigned(s.Bytes)
	if blocks == 0 || used >= bytes/4 {
		return
	}
	m.AllSparse.Segments++
	m.AllSparse.FreeBytes += bytes - used
	m.Sparse = append(m.Sparse, Segment{
		Address: fmt.Sprintf("0x%x", s.Address), Bytes: bytes, UsedBytes: used, Blocks: blocks, Pool: p.Pool,
		Stream: p.Stream,
	})
}

// listSizes sets the sizes with most bytes, and the sum of the others.
func (m *Memory) listSizes(sizes map[uint64]*Size, top int) {
	m.Sizes = []Size{}
	for _, requested := range slices.SortedFunc(maps.Keys(sizes), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(sizes[b].Bytes, sizes[a].Bytes), cmp.Compare(b, a))
	}) {
		size := sizes[requested]
		if top == 0 || len(m.Sizes) < top {
			m.Sizes = append(m.Sizes, *size)
			continue
		}
		m.OtherSizes.Sizes++
		m.OtherSizes.Blocks += size.Blocks
		m.OtherSizes.Bytes += size.Bytes
	}
}

// newProof returns how a state was read.
func newProof(s *torchallocator.State) Proof {
	p := Proof{
		Totals: len(s.Totals), Differing: []Total{}, ReadNs: s.EndNs - s.AtNs, Tries: s.Tries, Calls: s.Calls,
		ReadBytes: int64(s.ReadBytes), Layout: s.Version,
	}
	for _, t := range s.Totals {
		if t.Blocks == t.Statistics {
			p.TotalsAgree++
		} else {
			p.Differing = append(p.Differing, Total(t))
		}
	}
	return p
}

// toSigned converts a size. It bounds sizes of damaged memory.
func toSigned(bytes uint64) int64 { return int64(min(bytes, math.MaxInt64)) }

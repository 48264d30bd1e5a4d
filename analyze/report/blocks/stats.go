package blocks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/blockreadings"
	"github.com/gpurec/gpurec/analyze/stats"
)

const (
	// maxMoments is the largest number of readings of an allocator in the table moments.
	maxMoments = 200
	// minSizesToRemove is the number of sizes at which those are removed first whose blocks came and went.
	minSizesToRemove = 1 << 14
)

// allocatorStats are the usable readings of one allocator.
type allocatorStats struct {
	*blockreadings.Allocator
	checkpoints   stats.Checkpoints
	afterWarmup   int64 // readings after the warm-up
	first         blockreadings.Totals
	least, most   blockreadings.Totals // each field on its own, without AtNs
	moments       []blockreadings.Totals
	all           sizeStats // blocks of all sizes
	sizes         map[blockreadings.Size]*sizeStats
	sizesToRemove int   // number of sizes at which those without blocks are removed
	removed       int64 // number of removed sizes
	// The fields below are set by finish.
	survivors blockreadings.Level
	growth    growth // of all
	hasEnded  bool   // the process has ended
	// hasGrowingSize is set by scan.classify if a size has the verdict growing.
	hasGrowingSize bool
}

// sizeStats are the blocks of one size.
type sizeStats struct {
	stats.Floor                     // of their bytes
	first, last blockreadings.Level // at the first and at the last reading
	peak        int64               // bytes
	seen, gone  int64               // blocks in any reading, and those of them that a later reading did not have
	ages        []int64             // of the blocks at the last reading, ns; sorted by finish
}

func newAllocatorStats(a *blockreadings.Allocator) *allocatorStats {
	return &allocatorStats{
		Allocator: a, checkpoints: stats.NewCheckpoints(a.FirstNs, a.LastNs),
		sizes: make(map[blockreadings.Size]*sizeStats), sizesToRemove: minSizesToRemove,
	}
}

// unused returns the number of readings that are neither used nor refused.
func (s *allocatorStats) unused() int64 { return s.Wrong + s.Skipped + s.Teardown }

// addReading adds a usable reading.
func (s *allocatorStats) addReading() {
	checkpoint := s.checkpoints.CountBefore(s.AtNs)
	if s.Used == 1 {
		s.addFirstReading()
	} else {
		s.addChanges(checkpoint)
	}
	s.all.set(s.AllBlocks(), blockreadings.Change{}, checkpoint)
	s.least.Allocated, s.most.Allocated = min(s.least.Allocated, s.Allocated), max(s.most.Allocated, s.Allocated)
	s.least.Reserved, s.most.Reserved = min(s.least.Reserved, s.Reserved), max(s.most.Reserved, s.Reserved)
	s.least.Blocks, s.most.Blocks = min(s.least.Blocks, s.Blocks), max(s.most.Blocks, s.Blocks)
	if s.AtNs > s.checkpoints.WarmNs {
		s.afterWarmup++
	}
	s.addMoment()
	if len(s.sizes) >= s.sizesToRemove {
		s.removeEmptySizes(checkpoint)
	}
}

// addFirstReading adds all blocks of the first reading.
func (s *allocatorStats) addFirstReading() {
	s.first, s.least, s.most = s.Totals, s.Totals, s.Totals
	s.all.first = s.AllBlocks()
	s.all.seen = s.all.first.Blocks
	for size, l := range s.EachLevel() {
		g := s.sizeOf(size)
		g.first = l
		g.set(l, blockreadings.Change{New: l.Blocks}, 0)
	}
}

// addChanges adds the blocks that changed since the reading before.
func (s *allocatorStats) addChanges(checkpoint int) {
	for size, c := range s.EachChange() {
		s.sizeOf(size).set(s.LevelOf(size), c, checkpoint)
		s.all.seen += c.New
		s.all.gone += c.Gone
	}
}

// sizeOf returns the blocks of a size, and adds the size if necessary.
func (s *allocatorStats) sizeOf(size blockreadings.Size) *sizeStats {
	g := s.sizes[size]
	if g == nil {
		g = new(sizeStats)
		s.sizes[size] = g
	}
	return g
}

// set sets the blocks of a size to those of a reading. checkpoint is the number of checkpoints before it.
func (g *sizeStats) set(now blockreadings.Level, c blockreadings.Change, checkpoint int) {
	g.PassCheckpoints(checkpoint)
	g.Add(now.Bytes - g.Level)
	g.last, g.peak = now, max(g.peak, now.Bytes)
	g.seen += c.New
	g.gone += c.Gone
}

// addMoment adds the present reading to the moments. It replaces the one before if both are in the same of maxMoments
// equal parts of the readings.
func (s *allocatorStats) addMoment() {
	part := func(n int64) int64 { return (n - 1) * maxMoments / int64(max(maxMoments, s.Readings)) }
	if last := len(s.moments) - 1; last >= 0 && part(s.Used) == part(s.Used-1) {
		s.moments[last] = s.Totals
		return
	}
	s.moments = append(s.moments, s.Totals)
}

// removeEmptySizes removes the sizes that have no blocks, and had none for the whole time between two checkpoints. They
// do not grow. So the number of sizes is bounded by that of the blocks at any time.
func (s *allocatorStats) removeEmptySizes(checkpoint int) {
	for size, g := range s.sizes {
		if g.PassCheckpoints(checkpoint); g.Level == 0 && g.Floors == nil && g.first.Blocks == 0 {
			delete(s.sizes, size)
			s.removed++
		}
	}
	s.sizesToRemove = max(minSizesToRemove, 2*len(s.sizes))
}

// finish completes the statistics after the last reading.
func (s *allocatorStats) finish() {
	s.all.PassCheckpoints(stats.CheckpointCount + 1)
	for _, g := range s.sizes {
		g.PassCheckpoints(stats.CheckpointCount + 1)
	}
	if s.Used == 0 {
		return
	}
	for b := range s.EachBlock() {
		g := s.sizes[b.Size]
		g.ages = append(g.ages, s.AtNs-b.SinceNs)
		if b.SinceNs <= s.first.AtNs {
			s.survivors.Blocks++
			s.survivors.Bytes += b.Bytes
		}
	}
	for _, g := range s.sizes {
		slices.Sort(g.ages)
	}
	s.growth = s.measureGrowth(&s.all)
}

package census

import (
	"cmp"
	"slices"
)

// Side has the collectives that a rank has launched.
type Side struct {
	Rank   int
	Counts map[string]int64 // by function, such as AllReduce
}

// Launched returns the number of collectives of all functions.
func (s *Side) Launched() (sum int64) {
	for _, n := range s.Counts {
		sum += n
	}
	return sum
}

// Kind says how the counts of ranks differ.
type Kind uint8

const (
	// Equal: all ranks have launched the same number of each function.
	Equal Kind = iota
	// Behind: some ranks have launched fewer collectives, and no function more often.
	Behind
	// Different: some ranks have launched a function more often, and another one less often.
	Different
)

// Comparison is the result of Compare.
type Comparison struct {
	Kind Kind
	// Ranks are the ranks with the fewest collectives, or the suspects of Different, ascending. Suspects are the
	// smaller of two sets of ranks. Empty: Kind is Equal, or no set is smaller.
	Ranks []int
	// Others are the other ranks, ascending.
	Others []int
	// First are the counts of the first of Ranks, Other those of the other ranks with the fewest collectives. If
	// Ranks is empty, both are of ranks that differ. Most are those with the most collectives. They are nil if
	// Kind is Equal.
	First, Other, Most *Side
}

// Compare compares the ranks of a communicator. The counts of ranks that are ahead by several collectives are those of
// programs that launch without waiting.
func Compare(sides []Side) Comparison {
	if len(sides) < 2 {
		return Comparison{}
	}
	sides = slices.Clone(sides)
	slices.SortFunc(sides, func(a, b Side) int {
		return cmp.Or(cmp.Compare(a.Launched(), b.Launched()), cmp.Compare(a.Rank, b.Rank))
	})
	sets := divide(sides)
	switch {
	case len(sets) > 1:
		return compareSets(sets)
	case sides[0].Launched() == sides[len(sides)-1].Launched():
		return Comparison{}
	}
	n := slices.IndexFunc(sides, func(s Side) bool { return s.Launched() > sides[0].Launched() })
	return Comparison{
		Kind: Behind, Ranks: ranksOf(sides[:n]), Others: ranksOf(sides[n:]), First: &sides[0], Other: &sides[n],
		Most: &sides[len(sides)-1],
	}
}

// divide divides ranks into sets. In a set, no rank has launched a function more often and another one less often than
// any other rank.
func divide(sides []Side) (sets [][]Side) {
	for _, side := range sides {
		i := slices.IndexFunc(sets, func(set []Side) bool {
			return !slices.ContainsFunc(set, func(other Side) bool { return isCrossed(&side, &other) })
		})
		if i < 0 {
			sets = append(sets, nil)
			i = len(sets) - 1
		}
		sets[i] = append(sets[i], side)
	}
	return sets
}

// isCrossed reports whether each of two ranks has launched a function more often than the other.
func isCrossed(a, b *Side) bool { return hasMore(a, b) && hasMore(b, a) }

// hasMore reports whether a has launched a function more often than b.
func hasMore(a, b *Side) bool {
	for function, n := range a.Counts {
		if n > b.Counts[function] {
			return true
		}
	}
	return false
}

// compareSets returns the difference between sets of ranks. The smaller one of two sets has the suspects.
func compareSets(sets [][]Side) Comparison {
	slices.SortStableFunc(sets, func(a, b []Side) int { return cmp.Compare(len(a), len(b)) })
	c := Comparison{Kind: Different, First: &sets[0][0], Other: &sets[1][0], Most: &sets[1][len(sets[1])-1]}
	var others []Side
	for _, set := range sets[1:] {
		others = append(others, set...)
	}
	if len(sets) > 2 || len(sets[0]) == len(sets[1]) {
		c.Others = ranksOf(append(others, sets[0]...))
		return c
	}
	c.Ranks, c.Others = ranksOf(sets[0]), ranksOf(others)
	return c
}

// ranksOf returns the ranks of sides, ascending.
func ranksOf(sides []Side) (ranks []int) {
	for i := range sides {
		ranks = append(ranks, sides[i].Rank)
	}
	slices.Sort(ranks)
	return ranks
}

package census

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/units"
)

// Text describes the result in a sentence without a period, such as "rank 1 launched 1,840 AllReduce, the others
// 1,841".
func (c *Comparison) Text() string {
	switch {
	case c.Kind == Equal:
		return "all ranks launched the same number of each operation"
	case c.Kind == Behind:
		return c.behindText()
	case len(c.Ranks) == 0:
		return fmt.Sprintf("the ranks launched different operations: rank %d launched %s than rank %d", c.First.Rank,
			differenceText(c.First, c.Other), c.Other.Rank)
	}
	return fmt.Sprintf(
		"%s launched %s than rank %d",
		RanksText(c.Ranks),
		differenceText(c.First, c.Other),
		c.Other.Rank,
	)
}

// behindText describes the ranks with the fewest collectives.
func (c *Comparison) behindText() string {
	what, few, less, most := "collectives", c.First.Launched(), c.Other.Launched(), c.Most.Launched()
	if function := c.Function(); function != "" {
		what, few, less, most = function, c.First.Counts[function], c.Other.Counts[function], c.Most.Counts[function]
	}
	who := "the others"
	if len(c.Others) == 1 {
		who = RanksText(c.Others)
	}
	if len(c.Others) < len(c.Ranks) && most == less {
		return fmt.Sprintf("%s launched %s %s, the others %s", RanksText(c.Others), units.FormatCount(less), what,
			units.FormatCount(few))
	}
	text := fmt.Sprintf("%s launched %s %s, %s %s", RanksText(c.Ranks), units.FormatCount(few), what, who,
		units.FormatCount(less))
	if most != less {
		text += " to " + units.FormatCount(most)
	}
	return text
}

// Function returns the only function whose counts differ between the ranks of Behind, "" if there are several.
func (c *Comparison) Function() string {
	if c.Kind != Behind {
		return ""
	}
	only := ""
	for _, function := range functionsOf(c.First, c.Most) {
		if c.First.Counts[function] == c.Most.Counts[function] {
			continue
		}
		if only != "" {
			return ""
		}
		only = function
	}
	return only
}

// differenceText says what a rank has launched more and less often than another one.
func differenceText(a, b *Side) string {
	var parts []string
	for _, word := range []string{"more", "less"} {
		var list []string
		for _, function := range functionsOf(a, b) {
			n := a.Counts[function] - b.Counts[function]
			if word == "less" {
				n = -n
			}
			if n > 0 {
				list = append(list, units.FormatCount(n)+" "+function)
			}
		}
		if len(list) > 0 {
			parts = append(parts, units.JoinWithAnd(list)+" "+word)
		}
	}
	return strings.Join(parts, " and ")
}

// CountsText returns the functions with their counts, such as "AllReduce 1,840, Broadcast 2"; "none" without any.
func CountsText(counts map[string]int64) string {
	var parts []string
	for _, function := range functionsOf(&Side{Counts: counts}) {
		if n := counts[function]; n > 0 {
			parts = append(parts, function+" "+units.FormatCount(n))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// functionsOf returns the functions of sides, sorted by name.
func functionsOf(sides ...*Side) []string {
	all := make(map[string]bool)
	for _, side := range sides {
		for function := range side.Counts {
			all[function] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// RanksText returns "rank 6" or "ranks 0-5, 7".
func RanksText(ranks []int) string {
	if len(ranks) == 1 {
		return "rank " + units.FormatNumberSet(ranks)
	}
	return "ranks " + units.FormatNumberSet(ranks)
}

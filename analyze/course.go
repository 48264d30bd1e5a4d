package analyze

import "slices"

// floorCourse is the course of the lowest live bytes of a group between checkpoints, which its verdict is judged by; nil if nothing
// ever stayed.
func (s *leakScan) floorCourse(g *leakGroup) any {
	var sum []int64
	for i := range g.climbs {
		for step, floor := range s.series(&g.climbs[i]) {
			if sum == nil {
				sum = make([]int64, checkpoints)
			}
			sum[min(step, checkpoints-1)] += floor
		}
	}
	if sum == nil || slices.Max(sum) == 0 {
		return nil
	}
	return sum
}

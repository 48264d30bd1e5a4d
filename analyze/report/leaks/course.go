package leaks

import "slices"

// floorCourse is the course of the lowest live bytes of a group between checkpoints, which its verdict is judged by; nil if nothing
// ever stayed.
func (s *Scan) floorCourse(g *groupStats) any {
	var sum []int64
	for i := range g.trackers {
		for step, floor := range s.series(&g.trackers[i]) {
			if sum == nil {
				sum = make([]int64, Checkpoints)
			}
			sum[min(step, Checkpoints-1)] += floor
		}
	}
	if sum == nil || slices.Max(sum) == 0 {
		return nil
	}
	return sum
}

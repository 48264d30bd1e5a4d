package stack

import "github.com/gpurec/gpurec/analyze/query"

// VisibleFrames returns the frames of a stack that the rules do not hide. If they hide all frames,
// it returns the first one.
func (s *StackTable) VisibleFrames(stack int32, rules *query.FrameRules) []int32 {
	var list []int32
	ids := s.Stacks[stack]
	for _, id := range ids {
		if _, hidden := rules.HidesFrame(&s.Frames[id]); !hidden {
			list = append(list, id)
		}
	}
	if len(list) == 0 && len(ids) > 0 {
		return ids[:1]
	}
	return list
}

package report

// Named returns the frames of a list that stand for themselves.
func Named(list []Frame) []Frame {
	frames := make([]Frame, 0, len(list))
	for _, f := range list {
		if f.Folded == 0 {
			frames = append(frames, f)
		}
	}
	return frames
}

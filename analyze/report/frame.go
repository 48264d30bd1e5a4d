package report

// Frame is a stack frame in a report, or a placeholder for several hidden frames.
type Frame struct {
	Func   string `json:"func"`
	File   string `json:"file,omitempty"`
	Line   int32  `json:"line,omitempty"`
	Module string `json:"module,omitempty"`
	// Folded is the number of hidden frames that this placeholder represents, 0 for a real frame.
	// Libraries are the libraries of these frames. nil Libraries means that a limit cut them off.
	Folded    int      `json:"-"`
	Libraries []string `json:"-"`
}

// VisibleFrames returns the frames of a list without the placeholders for hidden frames.
func VisibleFrames(list []Frame) []Frame {
	frames := make([]Frame, 0, len(list))
	for _, f := range list {
		if f.Folded == 0 {
			frames = append(frames, f)
		}
	}
	return frames
}

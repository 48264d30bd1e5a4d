package report

// Frame is a frame of a stack in a report, or the place of several frames that are not shown.
type Frame struct {
	Func   string `json:"func"`
	File   string `json:"file,omitempty"`
	Line   int32  `json:"line,omitempty"`
	Module string `json:"module,omitempty"`
	// Folded is the number of frames that are not shown here, 0 for a frame. Of are the libraries
	// that they belong to. Without Of, they are the frames beyond a limit.
	Folded    int      `json:"-"`
	Libraries []string `json:"-"`
}

// Named returns the frames of a list without the places of frames that are not shown.
func VisibleFrames(list []Frame) []Frame {
	frames := make([]Frame, 0, len(list))
	for _, f := range list {
		if f.Folded == 0 {
			frames = append(frames, f)
		}
	}
	return frames
}

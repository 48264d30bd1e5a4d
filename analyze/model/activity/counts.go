package activity

// OperationCounts counts operations by the quality of their start.
type OperationCounts struct {
	Operations                            int64 // operations with a recorded call
	Measured, Bounded, Estimated, Unknown int64
	Ended                                 int64 // operations whose end is measured
}

// ChannelCounts counts the operations and samples of a channel.
type ChannelCounts struct {
	OperationCounts
	Extra       int64 // operations without a recorded call between anchors
	Slips       int64 // times at which Extra rose
	Conflicts   int64 // times at which calls and counter disagreed
	Anchors     int64 // times at which all numbers so far became final
	IdleAnchors int64 // those that follow from pauses instead of waits
	Samples     int64
	TornSamples int64 // samples that were left out, because counter and time did not belong together
	Skipped     int64 // samples whose counter was not above that of an earlier sample
}

// isPlausible reports whether counter and calls agree, apart from torn samples. Without any anchor, there must be no
// conflict. Where launches are not recorded, wrong places of copies cause few conflicts, so if they are open, there
// must be none, too.
func (c *channelState) isPlausible() bool {
	const allowed, samplesPerConflict = 2, 20_000
	if c.counts.Conflicts > 0 && (c.finals == 0 || c.reader.hasOpenPlaces && len(c.reader.gaps) > 0) {
		return false
	}
	return c.counts.Conflicts <= allowed+c.counts.Samples/samplesPerConflict
}

func (c *OperationCounts) count(w *Operation) {
	c.Operations++
	if w.EndQuality == Measured {
		c.Ended++
	}
	switch w.StartQuality {
	case Measured:
		c.Measured++
	case Bounded:
		c.Bounded++
	case Estimated:
		c.Estimated++
	default:
		c.Unknown++
	}
}

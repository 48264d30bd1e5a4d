package activity

// WorksTwice computes the activity of a recording. It passes all works and spans to yield, first from the log, and then
// from a replay. The copies of the works have no fields that only the replay needs.
func WorksTwice(source Source, channels []Channel, opt Options, yield func(isReplay bool, w Work, h Hold)) error {
	opt.keepsWorks = true
	best, err := findBest(source, channels, opt)
	if err != nil {
		return err
	}
	means := best.result().durationsByKey()
	for _, isReplay := range []bool{false, true} {
		pass := func(w *Work) {
			of, hold := *w, Hold{}
			if w.Hold != nil {
				hold = *w.Hold
			}
			of.Call.ID, of.Call.Event, of.Hold = 0, 0, nil
			of.handedOver, of.handOverNs, of.toCopyNs, of.copyLabel = false, 0, 0, labelKey{}
			of.engineFreeNs, of.first, of.last = 0, 0, 0
			yield(isReplay, of, hold)
		}
		span := func(pid, device int32, i Interval) {
			yield(isReplay, Work{Start: i, Stream: pid, Channel: device}, Hold{})
		}
		if err := best.eachWork(means, pass, span); err != nil {
			return err
		}
		best.closeLog()
	}
	return nil
}

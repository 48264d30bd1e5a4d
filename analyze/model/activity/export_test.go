package activity

// OperationsTwice computes the activity of a recording. It passes all operations and spans to yield, first from the
// log, and then from a replay. The copies of the operations have no fields that only the replay needs.
func OperationsTwice(
	source Source,
	channels []Channel,
	opt Options,
	yield func(isReplay bool, w Operation, h Hold),
) error {
	opt.keepsOperations = true
	best, err := findBest(source, channels, opt)
	if err != nil {
		return err
	}
	means := best.result().durationsByKey()
	for _, isReplay := range []bool{false, true} {
		pass := func(w *Operation) {
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
			yield(isReplay, Operation{Start: i, Stream: pid, Channel: device}, Hold{})
		}
		if err := best.eachOperation(means, pass, span); err != nil {
			return err
		}
		best.closeLog()
	}
	return nil
}

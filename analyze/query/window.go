package query

// Window is an interval of time in Unix ns. Both ends are included.
type Window struct{ FromNs, ToNs int64 }

// DurNs returns the window's length in ns, never negative.
func (w Window) DurNs() int64 { return max(0, w.ToNs-w.FromNs) }

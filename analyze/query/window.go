package query

// Window is a stretch of time in Unix ns, both ends included.
type Window struct{ FromNs, ToNs int64 }

// DurNs returns the window's length, never negative.
func (w Window) DurNs() int64 { return max(0, w.ToNs-w.FromNs) }

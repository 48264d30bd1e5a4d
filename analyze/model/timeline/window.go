package timeline

import "github.com/gpurec/gpurec/analyze/query"

// Activity returns the window in which trends are computed. It starts with the first memory call or
// event, and ends with the recording or the last process.
func (t *Timeline) Activity(f *query.Filter) query.Window {
	w := t.Recording()
	if first, ok := t.firstMemoryNs(); ok {
		w.FromNs = first
	}
	if end, ok := t.Facts.AllExited(); ok && end > w.FromNs && end < w.ToNs {
		w.ToNs = end
	}
	return f.Window(w)
}

package timeline

import "github.com/gpurec/gpurec/analyze/query"

// Activity returns the window in which trends are computed: from the first memory call or event, to
// the end of the recording or of the last process.
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

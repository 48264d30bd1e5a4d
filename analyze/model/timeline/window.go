package timeline

import "github.com/gpurec/gpurec/analyze/query"

// ActivityWindow returns the window in which trends are computed. It starts with the first memory
// call or event, and ends with the recording or the last process.
func (t *Timeline) ActivityWindow(f *query.Filter) query.Window {
	w := t.RecordingWindow()
	if first, ok := t.firstMemoryNs(); ok {
		w.FromNs = first
	}
	if end, ok := t.Facts.LastExit(); ok && end > w.FromNs && end < w.ToNs {
		w.ToNs = end
	}
	return f.NarrowWindow(w)
}

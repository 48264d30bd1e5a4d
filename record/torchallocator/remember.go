//go:build linux

package torchallocator

import "sync"

// maxRemembered bounds the libraries whose layouts are remembered.
const maxRemembered = 64

// remembered has the layouts that were verified, by the build id of the library.
var remembered struct {
	sync.Mutex
	layouts map[string]layout
}

// Remember makes the reader try the layout that was verified last in a library, by its build id, and remember the one
// that it verifies. Every reading is verified all the same.
func (r *Reader) Remember(buildID string) { r.library = buildID }

// known returns the layout that was verified last, or nil.
func (r *Reader) known() *layout {
	if r.layout != nil || r.library == "" {
		return r.layout
	}
	remembered.Lock()
	defer remembered.Unlock()
	if l, ok := remembered.layouts[r.library]; ok {
		return &l
	}
	return nil
}

// keep remembers a layout that was verified.
func (r *Reader) keep(l *layout) {
	r.layout = l
	if r.library == "" {
		return
	}
	remembered.Lock()
	defer remembered.Unlock()
	if remembered.layouts == nil || len(remembered.layouts) >= maxRemembered {
		remembered.layouts = make(map[string]layout)
	}
	remembered.layouts[r.library] = *l
}

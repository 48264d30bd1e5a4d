//go:build linux

package record

import (
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/rowwriter"
)

// watchers passes rows on to several watchers.
type watchers []rowwriter.Watcher

// WatchRows passes rows on.
func (w watchers) WatchRows(c format.Class, rows []format.Row) {
	for _, each := range w {
		each.WatchRows(c, rows)
	}
}

// WatchTime passes the time on.
func (w watchers) WatchTime(nowNs int64) {
	for _, each := range w {
		each.WatchTime(nowNs)
	}
}

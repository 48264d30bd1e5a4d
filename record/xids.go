//go:build linux

package record

import (
	"fmt"
	"os"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/xid"
)

// watchXids follows every source of Xids that there is, and notes what is missing.
func (s *Session) watchXids(c clock.Clock) {
	paths := xid.SystemPaths
	if s.opt.xids != nil {
		paths = *s.opt.xids
	}
	merger := xid.NewMerger(s.gpus)
	feeds, missing := xid.OpenFeeds(paths, c)
	if len(feeds) == 0 && s.nvml != nil {
		if err := s.nvml.WatchXids(c, merger, s.stop, &s.helpers); err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) > 0 && s.hasDriver() {
		s.machine.Send([]format.Row{{
			Kind: format.KindNote, Name: "xids", StartNs: c.NowNs(), Device: -1,
			Message: fmt.Sprintf("Xids are recorded without some sources: %s", strings.ReplaceAll(strings.Join(missing, "; "), "\n", "; ")),
		}})
	}
	s.helpers.Go(func() { xid.Follow(c, feeds, merger, s.machine, s.stop) })
}

// hasDriver reports whether this host has NVIDIA's driver, and so can have Xids.
func (s *Session) hasDriver() bool {
	_, err := os.Stat("/proc/driver/nvidia")
	return err == nil || len(s.gpus) > 0
}

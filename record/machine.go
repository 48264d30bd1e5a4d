//go:build linux

package record

import (
	"fmt"
	"os"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/host"
	"github.com/gpurec/gpurec/record/nvml"
	"github.com/gpurec/gpurec/record/rows"
	"github.com/gpurec/gpurec/record/xid"
)

// gpuMonitor samples the GPUs and follows their errors (Xids) during the recording.
type gpuMonitor struct {
	nvml *nvml.Sampler // nil: GPUs are not sampled
	// nvmlErr is the reason for which GPUs are not sampled; nil if sampling is off or works.
	nvmlErr error
	gpus    []host.GPU
	rows    *rows.Sender
}

// openNVML opens NVML. It must be called before probes are attached: it can take seconds, and
// nothing reads the ring buffer meanwhile.
func (s *Session) openNVML() {
	if s.opt.NVMLInterval <= 0 {
		return
	}
	m := &s.machine
	if m.nvml, m.nvmlErr = nvml.Open(); m.nvmlErr == nil {
		m.gpus = m.nvml.GPUs()
		s.meta.DriverVersion, s.meta.CUDAVersion = m.nvml.DriverVersion, m.nvml.CUDAVersion
	}
}

// gpuRows returns the rows of the GPUs, or a note with the reason for which there are none.
func (m *gpuMonitor) gpuRows(startNs int64) []format.Row {
	switch {
	case m.nvml != nil:
		return m.nvml.DeviceRows(startNs)
	case m.nvmlErr != nil:
		return []format.Row{
			{Kind: format.KindNote, Name: "nvml", StartNs: startNs, Message: m.nvmlErr.Error(), Device: -1},
		}
	}
	return nil
}

// startMonitoring starts the goroutines that sample GPUs, follow Xids and record mapped libraries.
func (s *Session) startMonitoring() {
	m := &s.machine
	m.rows = s.pipeline.writer.Sender()
	if m.nvml != nil {
		s.helpers.Go(func() { m.nvml.Run(s.clock, s.opt.NVMLInterval, m.rows, s.stop) })
	}
	s.watchXids()
	s.helpers.Go(func() { s.writeModuleRows(s.clock, s.stop) })
}

// storeSamplingCosts adds the cost of sampling to the metadata. The helpers must have ended.
func (s *Session) storeSamplingCosts() {
	dropped := s.machine.rows.Close()
	s.metaMu.Lock()
	defer s.metaMu.Unlock()
	s.meta.Cost.RowsDropped = dropped
	if s.machine.nvml != nil {
		s.meta.Cost.Sampling = s.machine.nvml.SamplingCosts()
	}
	s.meta.Clocks = append(s.meta.Clocks, host.ReadClocks())
}

// watchXids follows all available sources of Xids, and writes a note about unavailable ones.
func (s *Session) watchXids() {
	c, m, paths := s.clock, &s.machine, xid.SystemSourcePaths
	if s.opt.xids != nil {
		paths = *s.opt.xids
	}
	merger := xid.NewReportMerger(m.gpus)
	feeds, missing := xid.OpenXidFeeds(paths, c)
	if len(feeds) == 0 && m.nvml != nil {
		if err := m.nvml.WatchXids(c, merger, s.stop, &s.helpers); err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) > 0 && m.hasDriver() {
		m.rows.Send([]format.Row{
			{
				Kind:    format.KindNote,
				Name:    "xids",
				StartNs: c.NowNs(),
				Device:  -1,
				Message: fmt.Sprintf(
					"some sources of Xids are not available: %s",
					strings.ReplaceAll(strings.Join(missing, "; "), "\n", "; "),
				),
			},
		})
	}
	s.helpers.Go(func() { xid.FollowXids(c, feeds, merger, m.rows, s.stop) })
}

// hasDriver reports whether this host has NVIDIA's driver. Without the driver there are no Xids.
func (m *gpuMonitor) hasDriver() bool {
	_, err := os.Stat("/proc/driver/nvidia")
	return err == nil || len(m.gpus) > 0
}

// close closes NVML if it was opened.
func (m *gpuMonitor) close() {
	if m.nvml != nil {
		m.nvml.Close()
		m.nvml = nil
	}
}

//go:build linux && cgo

package nvml

import (
	"errors"
	"fmt"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/xid"
)

// maxEventWaitMs is the longest wait for an NVML event in ms. WatchXids then checks whether it
// should stop.
const maxEventWaitMs = 200

// WatchXids adds the Xids that NVML reports to the merger until stop is closed. Use it if the
// kernel's sources cannot be read. NVML reports code and device, but neither process nor text.
func (s *Sampler) WatchXids(
	c clock.Clock,
	merger *xid.ReportMerger,
	stop <-chan struct{},
	helpers *sync.WaitGroup,
) error {
	for _, symbol := range []string{"nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"} {
		if !hasNVMLFunction(symbol) {
			return errors.New("this NVML has no events")
		}
	}
	set, ret := nvml.EventSetCreate()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("make a set of NVML events: %s", explainNVMLError(ret))
	}
	registered := 0
	for _, g := range s.devices {
		if ret := g.handle.RegisterEvents(nvml.EventTypeXidCriticalError, set); ret == nvml.SUCCESS {
			registered++
		}
	}
	if registered == 0 {
		set.Free()
		return errors.New("no device reports Xids to NVML")
	}
	helpers.Go(func() {
		defer set.Free()
		for {
			event, ret := set.Wait(maxEventWaitMs)
			if ret == nvml.SUCCESS && event.EventType == nvml.EventTypeXidCriticalError {
				merger.AddReport(
					xid.Report{
						Source: xid.SourceNVML,
						AtNs:   c.NowNs(),
						PCI:    s.pciAddressOf(event.Device),
						Code:   int32(event.EventData),
					},
					c.NowNs(),
				)
			} else if ret != nvml.SUCCESS && ret != nvml.ERROR_TIMEOUT {
				return // a GPU is lost: sampling notes it
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	return nil
}

// pciAddressOf returns the PCI address of a device, because device handles cannot be compared.
func (s *Sampler) pciAddressOf(d nvml.Device) string {
	pci, ret := d.GetPciInfo()
	if ret != nvml.SUCCESS {
		return ""
	}
	return formatPCIAddress(decodeCString(pci.BusId[:]))
}

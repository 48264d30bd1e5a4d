//go:build linux && cgo

package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/format"
)

// telemetry samples the GPUs through NVML. Only metrics that a device supports are
// asked for; which those are is asked once.
type telemetry struct {
	devices []gpu
	driver  string
	cuda    string
}

type gpu struct {
	index   int
	handle  nvml.Device
	uuid    string
	name    string
	total   uint64
	metrics []metric
}

// metric is one thing that NVML knows of a device; read returns its values, in the
// order of names.
type metric struct {
	symbol string
	names  []string
	read   func(nvml.Device) ([]float64, nvml.Return)
}

// metrics are all that gpurec samples; units are in the names.
var metrics = []metric{
	{"nvmlDeviceGetUtilizationRates", []string{"gpu_utilization_percent", "memory_utilization_percent"}, func(d nvml.Device) ([]float64, nvml.Return) {
		u, ret := d.GetUtilizationRates()
		return []float64{float64(u.Gpu), float64(u.Memory)}, ret
	}},
	{"nvmlDeviceGetMemoryInfo", []string{"memory_total_bytes", "memory_used_bytes", "memory_free_bytes"}, func(d nvml.Device) ([]float64, nvml.Return) {
		m, ret := d.GetMemoryInfo()
		return []float64{float64(m.Total), float64(m.Used), float64(m.Free)}, ret
	}},
	{"nvmlDeviceGetPowerUsage", []string{"power_milliwatts"}, func(d nvml.Device) ([]float64, nvml.Return) {
		p, ret := d.GetPowerUsage()
		return []float64{float64(p)}, ret
	}},
	{"nvmlDeviceGetTemperature", []string{"temperature_celsius"}, func(d nvml.Device) ([]float64, nvml.Return) {
		t, ret := d.GetTemperature(nvml.TEMPERATURE_GPU)
		return []float64{float64(t)}, ret
	}},
	{"nvmlDeviceGetClockInfo", []string{"sm_clock_mhz"}, func(d nvml.Device) ([]float64, nvml.Return) {
		c, ret := d.GetClockInfo(nvml.CLOCK_SM)
		return []float64{float64(c)}, ret
	}},
	{"nvmlDeviceGetClockInfo", []string{"memory_clock_mhz"}, func(d nvml.Device) ([]float64, nvml.Return) {
		c, ret := d.GetClockInfo(nvml.CLOCK_MEM)
		return []float64{float64(c)}, ret
	}},
}

// ErrNoNVML says why there are no GPU samples.
var ErrNoNVML = errors.New("no NVML")

// openTelemetry loads NVML and looks at the devices; the error matches ErrNoNVML.
func openTelemetry() (*telemetry, error) {
	if ret := nvml.Init(); ret != nvml.SUCCESS {
		return nil, fmt.Errorf("%w: %s", ErrNoNVML, explainNVML(ret))
	}
	t := new(telemetry)
	if driver, ret := nvml.SystemGetDriverVersion(); ret == nvml.SUCCESS {
		t.driver = driver
	}
	if v, ret := nvml.SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		t.cuda = fmt.Sprintf("%d.%d", v/1000, v%1000/10)
	}
	n, ret := nvml.DeviceGetCount()
	if ret != nvml.SUCCESS {
		t.close()
		return nil, fmt.Errorf("%w: count devices: %s", ErrNoNVML, explainNVML(ret))
	}
	for i := range n {
		if d, err := openGPU(i); err == nil {
			t.devices = append(t.devices, d)
		}
	}
	return t, nil
}

// explainNVML avoids nvml.ErrorString where the library is not there to ask.
func explainNVML(ret nvml.Return) string {
	if ret == nvml.ERROR_LIBRARY_NOT_FOUND {
		return "libnvidia-ml.so.1 was not found"
	}
	return nvml.ErrorString(ret)
}

func openGPU(index int) (gpu, error) {
	handle, ret := nvml.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return gpu{}, fmt.Errorf("open device %d: %s", index, explainNVML(ret))
	}
	g := gpu{index: index, handle: handle}
	if uuid, ret := handle.GetUUID(); ret == nvml.SUCCESS {
		g.uuid = uuid
	}
	if name, ret := handle.GetName(); ret == nvml.SUCCESS {
		g.name = name
	}
	if m, ret := handle.GetMemoryInfo(); ret == nvml.SUCCESS {
		g.total = m.Total
	}
	for _, m := range metrics {
		if nvml.Extensions().LookupSymbol(m.symbol) != nil {
			continue // an older driver: calling it would end this process
		}
		if _, ret := m.read(handle); ret == nvml.SUCCESS {
			g.metrics = append(g.metrics, m)
		}
	}
	return g, nil
}

// names returns what the GPUs are called, in NVML's order.
func (t *telemetry) names() []gpuName {
	names := make([]gpuName, 0, len(t.devices))
	for _, g := range t.devices {
		names = append(names, gpuName{uuid: g.uuid, name: g.name})
	}
	return names
}

// facts returns a row of kind device per GPU.
func (t *telemetry) facts(now int64) []format.Row {
	var rows []format.Row
	for _, g := range t.devices {
		text, err := json.Marshal(struct {
			UUID string `json:"uuid"`
		}{g.uuid})
		if err != nil {
			continue // a string always encodes
		}
		rows = append(rows, format.Row{
			Kind: format.KindDevice, StartNs: now, Device: int32(g.index), Name: g.name, Bytes: int64(g.total), Message: string(text),
		})
	}
	return rows
}

// sample reads every supported metric of every device once.
func (t *telemetry) sample(c clock) []format.Row {
	var rows []format.Row
	for _, g := range t.devices {
		for _, m := range g.metrics {
			start := c.now()
			values, ret := m.read(g.handle)
			if ret != nvml.SUCCESS {
				continue // an absent sample, not a zero
			}
			for i, name := range m.names {
				rows = append(rows, format.Row{
					Kind: format.KindNVML, StartNs: start, DurNs: c.now() - start, Device: int32(g.index), Name: name, Value: values[i],
				})
			}
		}
	}
	return rows
}

// run samples every interval until stop is closed.
func (t *telemetry) run(c clock, every time.Duration, rows chan<- []format.Row, stop <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if sampled := t.sample(c); len(sampled) > 0 {
			rows <- sampled
		}
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}

func (t *telemetry) close() { nvml.Shutdown() }

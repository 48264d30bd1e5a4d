//go:build linux && cgo

package nvml

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/format"
)

// DeviceRows returns one row of kind device for each GPU. now is in Unix ns.
func (s *Sampler) DeviceRows(now int64) []format.Row {
	var rows []format.Row
	for _, g := range s.devices {
		fact := g.readFact()
		fact.Topology = s.readTopology(g)
		message, err := json.Marshal(fact)
		if err != nil {
			continue // strings and numbers always encode
		}
		rows = append(rows, format.Row{
			Kind:    format.KindDevice,
			StartNs: now,
			Device:  int32(g.index),
			Name:    g.name,
			Bytes:   int64(g.total),
			Message: string(message),
		})
	}
	return rows
}

// readOptionalValue calls an NVML function. ok is false if the driver lacks the function or the
// device does not support it.
func readOptionalValue[T any](symbol string, read func() (T, nvml.Return)) (v T, ok bool) {
	if !hasNVMLFunction(symbol) {
		return v, false
	}
	v, ret := read()
	return v, ret == nvml.SUCCESS
}

// readOptionalNumber stores the result of an NVML function in *into, if the device supports it.
func readOptionalNumber[T int | uint32](into *int64, symbol string, read func() (T, nvml.Return)) {
	if v, ok := readOptionalValue(symbol, read); ok {
		*into = int64(v)
	}
}

// readFeatureState returns the state of an NVML feature, or nil if it is unknown.
func readFeatureState(symbol string, read func() (nvml.EnableState, nvml.Return)) *bool {
	state, ok := readOptionalValue(symbol, read)
	if !ok {
		return nil
	}
	on := state == nvml.FEATURE_ENABLED
	return &on
}

// readFact returns the facts of the GPU, without its topology.
func (g *gpu) readFact() format.DeviceFact {
	d := g.handle
	f := format.DeviceFact{UUID: g.uuid, PCI: g.pci}
	f.Serial, _ = readOptionalValue("nvmlDeviceGetSerial", d.GetSerial)
	f.VBIOS, _ = readOptionalValue("nvmlDeviceGetVbiosVersion", d.GetVbiosVersion)
	if hasNVMLFunction("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
			f.ComputeCapability = strconv.Itoa(major) + "." + strconv.Itoa(minor)
		}
	}
	readOptionalNumber(&f.Cores, "nvmlDeviceGetNumGpuCores", d.GetNumGpuCores)
	readOptionalNumber(&f.MemoryBusBits, "nvmlDeviceGetMemoryBusWidth", d.GetMemoryBusWidth)
	if bar1, ok := readOptionalValue("nvmlDeviceGetBAR1MemoryInfo", d.GetBAR1MemoryInfo); ok {
		f.BAR1Bytes = int64(bar1.Bar1Total)
	}
	if mode, ok := readOptionalValue("nvmlDeviceGetComputeMode", d.GetComputeMode); ok {
		f.ComputeMode = computeModeNames[mode]
	}
	f.PersistenceMode = readFeatureState("nvmlDeviceGetPersistenceMode", d.GetPersistenceMode)
	f.ECC = readFeatureState("nvmlDeviceGetEccMode", func() (nvml.EnableState, nvml.Return) {
		current, _, ret := d.GetEccMode()
		return current, ret
	})
	readOptionalNumber(&f.PCIeGenerationMax, "nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration)
	readOptionalNumber(&f.PCIeWidthMax, "nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth)
	g.readLimits(&f)
	f.MIG, f.MIGDevices = g.isDivided, g.parts
	f.NVLinks = g.readNVLinks()
	return f
}

var computeModeNames = map[nvml.ComputeMode]string{
	nvml.COMPUTEMODE_DEFAULT: "default", nvml.COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive_thread",
	nvml.COMPUTEMODE_PROHIBITED: "prohibited", nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
}

// readLimits sets the limits of power, temperature and clocks.
func (g *gpu) readLimits(f *format.DeviceFact) {
	d := g.handle
	readOptionalNumber(
		&f.PowerLimitDefaultMilliwatts,
		"nvmlDeviceGetPowerManagementDefaultLimit",
		d.GetPowerManagementDefaultLimit,
	)
	if hasNVMLFunction("nvmlDeviceGetPowerManagementLimitConstraints") {
		if lowest, highest, ret := d.GetPowerManagementLimitConstraints(); ret == nvml.SUCCESS {
			f.PowerLimitMinMilliwatts, f.PowerLimitMaxMilliwatts = int64(lowest), int64(highest)
		}
	}
	threshold := func(into *int64, which nvml.TemperatureThresholds) {
		readOptionalNumber(
			into,
			"nvmlDeviceGetTemperatureThreshold",
			func() (uint32, nvml.Return) { return d.GetTemperatureThreshold(which) },
		)
	}
	threshold(&f.SlowdownCelsius, nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	threshold(&f.ShutdownCelsius, nvml.TEMPERATURE_THRESHOLD_SHUTDOWN)
	clock := func(into *int64, which nvml.ClockType) {
		readOptionalNumber(
			into,
			"nvmlDeviceGetMaxClockInfo",
			func() (uint32, nvml.Return) { return d.GetMaxClockInfo(which) },
		)
	}
	clock(&f.MaxGraphicsClockMHz, nvml.CLOCK_GRAPHICS)
	clock(&f.MaxSMClockMHz, nvml.CLOCK_SM)
	clock(&f.MaxMemoryClockMHz, nvml.CLOCK_MEM)
	clock(&f.MaxVideoClockMHz, nvml.CLOCK_VIDEO)
}

// readMIGDevices reads whether MIG mode is on, and the MIG devices.
func (g *gpu) readMIGDevices() {
	g.isDivided = readFeatureState("nvmlDeviceGetMigMode", func() (nvml.EnableState, nvml.Return) {
		current, _, ret := g.handle.GetMigMode()
		return nvml.EnableState(current), ret
	})
	if g.isDivided == nil || !*g.isDivided || !hasNVMLFunction("nvmlDeviceGetMaxMigDeviceCount") ||
		!hasNVMLFunction("nvmlDeviceGetMigDeviceHandleByIndex") {
		return
	}
	n, ret := g.handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return
	}
	for i := range n {
		part, ret := g.handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // n is the largest possible number of MIG devices
		}
		m := format.MIGDevice{GPUInstance: -1, ComputeInstance: -1}
		m.UUID, _ = readOptionalValue("nvmlDeviceGetUUID", part.GetUUID)
		m.Name, _ = readOptionalValue("nvmlDeviceGetName", part.GetName)
		readOptionalNumber(&m.GPUInstance, "nvmlDeviceGetGpuInstanceId", part.GetGpuInstanceId)
		readOptionalNumber(&m.ComputeInstance, "nvmlDeviceGetComputeInstanceId", part.GetComputeInstanceId)
		if memory, ok := readOptionalValue("nvmlDeviceGetMemoryInfo", part.GetMemoryInfo); ok {
			m.MemoryBytes = int64(memory.Total)
		}
		g.parts = append(g.parts, m)
	}
}

// readNVLinks returns the NVLinks of the GPU.
func (g *gpu) readNVLinks() []format.NVLink {
	if !hasNVMLFunction("nvmlDeviceGetNvLinkState") {
		return nil
	}
	var links []format.NVLink
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := g.handle.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break
		}
		l := format.NVLink{Link: link, Active: state == nvml.FEATURE_ENABLED}
		if l.Active && hasNVMLFunction("nvmlDeviceGetNvLinkRemotePciInfo_v2") {
			if remote, ret := g.handle.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
				l.Remote = formatPCIAddress(decodeCString(remote.BusId[:]))
			}
		}
		links = append(links, l)
	}
	return links
}

var topologyLevelNames = map[nvml.GpuTopologyLevel]string{
	nvml.TOPOLOGY_INTERNAL: "board", nvml.TOPOLOGY_SINGLE: "switch", nvml.TOPOLOGY_MULTIPLE: "switches",
	nvml.TOPOLOGY_HOSTBRIDGE: "host_bridge", nvml.TOPOLOGY_NODE: "numa_node", nvml.TOPOLOGY_SYSTEM: "system",
}

// readTopology returns the PCIe paths from a GPU to the other GPUs.
func (s *Sampler) readTopology(g *gpu) []format.PCIePath {
	if !hasNVMLFunction("nvmlDeviceGetTopologyCommonAncestor") {
		return nil
	}
	var near []format.PCIePath
	for _, other := range s.devices {
		if other == g {
			continue
		}
		if level, ret := g.handle.GetTopologyCommonAncestor(other.handle); ret == nvml.SUCCESS {
			near = append(near, format.PCIePath{Device: other.index, Between: topologyLevelNames[level]})
		}
	}
	return near
}

// formatPCIAddress returns a PCI address in the notation of Linux, 0000:3b:00.0. NVML's domain has
// more digits.
func formatPCIAddress(bus string) string {
	domain, rest, found := strings.Cut(strings.ToLower(bus), ":")
	if !found {
		return strings.ToLower(bus)
	}
	if n, err := strconv.ParseUint(domain, 16, 32); err == nil {
		domain = strconv.FormatUint(n, 16)
		domain = strings.Repeat("0", max(0, 4-len(domain))) + domain
	}
	return domain + ":" + rest
}

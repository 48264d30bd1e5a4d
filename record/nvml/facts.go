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
func (t *Sampler) DeviceRows(now int64) []format.Row {
	var rows []format.Row
	for _, g := range t.devices {
		fact := g.fact()
		fact.Topology = t.topology(g)
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

// readOptional calls an NVML function. ok is false if the driver lacks the function or the device
// does not support it.
func readOptional[T any](symbol string, read func() (T, nvml.Return)) (v T, ok bool) {
	if !hasFunction(symbol) {
		return v, false
	}
	v, ret := read()
	return v, ret == nvml.SUCCESS
}

// readNumber stores the result of an NVML function in *into, if the device supports it.
func readNumber[T int | uint32](into *int64, symbol string, read func() (T, nvml.Return)) {
	if v, ok := readOptional(symbol, read); ok {
		*into = int64(v)
	}
}

// featureState returns the state of an NVML feature, or nil if it is unknown.
func featureState(symbol string, read func() (nvml.EnableState, nvml.Return)) *bool {
	state, ok := readOptional(symbol, read)
	if !ok {
		return nil
	}
	on := state == nvml.FEATURE_ENABLED
	return &on
}

// fact returns the facts of the GPU, without its topology.
func (g *gpu) fact() format.DeviceFact {
	d := g.handle
	f := format.DeviceFact{UUID: g.uuid, PCI: g.pci}
	f.Serial, _ = readOptional("nvmlDeviceGetSerial", d.GetSerial)
	f.VBIOS, _ = readOptional("nvmlDeviceGetVbiosVersion", d.GetVbiosVersion)
	if hasFunction("nvmlDeviceGetCudaComputeCapability") {
		if major, minor, ret := d.GetCudaComputeCapability(); ret == nvml.SUCCESS {
			f.ComputeCapability = strconv.Itoa(major) + "." + strconv.Itoa(minor)
		}
	}
	readNumber(&f.Cores, "nvmlDeviceGetNumGpuCores", d.GetNumGpuCores)
	readNumber(&f.MemoryBusBits, "nvmlDeviceGetMemoryBusWidth", d.GetMemoryBusWidth)
	if bar1, ok := readOptional("nvmlDeviceGetBAR1MemoryInfo", d.GetBAR1MemoryInfo); ok {
		f.BAR1Bytes = int64(bar1.Bar1Total)
	}
	if mode, ok := readOptional("nvmlDeviceGetComputeMode", d.GetComputeMode); ok {
		f.ComputeMode = computeModes[mode]
	}
	f.PersistenceMode = featureState("nvmlDeviceGetPersistenceMode", d.GetPersistenceMode)
	f.ECC = featureState("nvmlDeviceGetEccMode", func() (nvml.EnableState, nvml.Return) {
		current, _, ret := d.GetEccMode()
		return current, ret
	})
	readNumber(&f.PCIeGenerationMax, "nvmlDeviceGetMaxPcieLinkGeneration", d.GetMaxPcieLinkGeneration)
	readNumber(&f.PCIeWidthMax, "nvmlDeviceGetMaxPcieLinkWidth", d.GetMaxPcieLinkWidth)
	g.limits(&f)
	f.MIG, f.MIGDevices = g.isDivided, g.parts
	f.NVLinks = g.nvlinks()
	return f
}

var computeModes = map[nvml.ComputeMode]string{
	nvml.COMPUTEMODE_DEFAULT: "default", nvml.COMPUTEMODE_EXCLUSIVE_THREAD: "exclusive_thread",
	nvml.COMPUTEMODE_PROHIBITED: "prohibited", nvml.COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive_process",
}

// limits sets the limits of power, temperature and clocks.
func (g *gpu) limits(f *format.DeviceFact) {
	d := g.handle
	readNumber(
		&f.PowerLimitDefaultMilliwatts,
		"nvmlDeviceGetPowerManagementDefaultLimit",
		d.GetPowerManagementDefaultLimit,
	)
	if hasFunction("nvmlDeviceGetPowerManagementLimitConstraints") {
		if lowest, highest, ret := d.GetPowerManagementLimitConstraints(); ret == nvml.SUCCESS {
			f.PowerLimitMinMilliwatts, f.PowerLimitMaxMilliwatts = int64(lowest), int64(highest)
		}
	}
	threshold := func(into *int64, which nvml.TemperatureThresholds) {
		readNumber(
			into,
			"nvmlDeviceGetTemperatureThreshold",
			func() (uint32, nvml.Return) { return d.GetTemperatureThreshold(which) },
		)
	}
	threshold(&f.SlowdownCelsius, nvml.TEMPERATURE_THRESHOLD_SLOWDOWN)
	threshold(&f.ShutdownCelsius, nvml.TEMPERATURE_THRESHOLD_SHUTDOWN)
	clock := func(into *int64, which nvml.ClockType) {
		readNumber(into, "nvmlDeviceGetMaxClockInfo", func() (uint32, nvml.Return) { return d.GetMaxClockInfo(which) })
	}
	clock(&f.MaxGraphicsClockMHz, nvml.CLOCK_GRAPHICS)
	clock(&f.MaxSMClockMHz, nvml.CLOCK_SM)
	clock(&f.MaxMemoryClockMHz, nvml.CLOCK_MEM)
	clock(&f.MaxVideoClockMHz, nvml.CLOCK_VIDEO)
}

// openMIG reads whether MIG mode is on, and the MIG devices.
func (g *gpu) openMIG() {
	g.isDivided = featureState("nvmlDeviceGetMigMode", func() (nvml.EnableState, nvml.Return) {
		current, _, ret := g.handle.GetMigMode()
		return nvml.EnableState(current), ret
	})
	if g.isDivided == nil || !*g.isDivided || !hasFunction("nvmlDeviceGetMaxMigDeviceCount") ||
		!hasFunction("nvmlDeviceGetMigDeviceHandleByIndex") {
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
		m.UUID, _ = readOptional("nvmlDeviceGetUUID", part.GetUUID)
		m.Name, _ = readOptional("nvmlDeviceGetName", part.GetName)
		readNumber(&m.GPUInstance, "nvmlDeviceGetGpuInstanceId", part.GetGpuInstanceId)
		readNumber(&m.ComputeInstance, "nvmlDeviceGetComputeInstanceId", part.GetComputeInstanceId)
		if memory, ok := readOptional("nvmlDeviceGetMemoryInfo", part.GetMemoryInfo); ok {
			m.MemoryBytes = int64(memory.Total)
		}
		g.parts = append(g.parts, m)
	}
}

// nvlinks returns the NVLinks of the GPU.
func (g *gpu) nvlinks() []format.NVLink {
	if !hasFunction("nvmlDeviceGetNvLinkState") {
		return nil
	}
	var links []format.NVLink
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := g.handle.GetNvLinkState(link)
		if ret != nvml.SUCCESS {
			break
		}
		l := format.NVLink{Link: link, Active: state == nvml.FEATURE_ENABLED}
		if l.Active && hasFunction("nvmlDeviceGetNvLinkRemotePciInfo_v2") {
			if remote, ret := g.handle.GetNvLinkRemotePciInfo(link); ret == nvml.SUCCESS {
				l.Remote = pciName(cString(remote.BusId[:]))
			}
		}
		links = append(links, l)
	}
	return links
}

var topologyLevels = map[nvml.GpuTopologyLevel]string{
	nvml.TOPOLOGY_INTERNAL: "board", nvml.TOPOLOGY_SINGLE: "switch", nvml.TOPOLOGY_MULTIPLE: "switches",
	nvml.TOPOLOGY_HOSTBRIDGE: "host_bridge", nvml.TOPOLOGY_NODE: "numa_node", nvml.TOPOLOGY_SYSTEM: "system",
}

// topology returns the PCIe paths from a GPU to the other GPUs.
func (t *Sampler) topology(g *gpu) []format.PCIePath {
	if !hasFunction("nvmlDeviceGetTopologyCommonAncestor") {
		return nil
	}
	var near []format.PCIePath
	for _, other := range t.devices {
		if other == g {
			continue
		}
		if level, ret := g.handle.GetTopologyCommonAncestor(other.handle); ret == nvml.SUCCESS {
			near = append(near, format.PCIePath{Device: other.index, Between: topologyLevels[level]})
		}
	}
	return near
}

// pciName returns a PCI address in the notation of Linux, 0000:3b:00.0. NVML's domain has more
// digits.
func pciName(bus string) string {
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

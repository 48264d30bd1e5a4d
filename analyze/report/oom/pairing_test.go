package oom

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// dividedTape is of a machine with one MIG GPU and one whole GPU. Processes see them differently.
func dividedTape(t *testing.T) *analyzetest.TestRecording {
	recording := analyzetest.NewTestRecording(t)
	for device, fact := range []string{
		`{"uuid":"GPU-aaaa","mig":true,"mig_devices":[{"uuid":"MIG-1111","gpu_instance":7,` +
			`"memory_bytes":10737418240,"name":"NVIDIA H100 MIG 1g.10gb"},{"uuid":"MIG-2222","gpu_instance":8}]}`,
		`{"uuid":"GPU-bbbb","mig":false}`,
	} {
		recording.AddRow(format.Row{
			Kind: format.KindDevice, StartNs: analyzetest.Epoch, Device: int32(device),
			Name: "NVIDIA H100", Bytes: 80 << 30, Message: fact,
		})
	}
	for pid, uuid := range map[int32]string{
		1: "MIG-1111", 2: "MIG-2222", 3: "GPU-bbbb", 4: "", 5: "GPU-bbbb", 6: "MIG-2222", 7: "", 8: "GPU-cccc", 9: "",
	} {
		r := recording.AddRow(
			format.Row{Kind: format.KindProcess, StartNs: analyzetest.Epoch, Pid: pid, Name: "train", Device: -1},
		)
		if uuid != "" {
			r.Message = fmt.Sprintf(`{"devices":[{"ordinal":0,"uuid":"%s","how":"CUDA_VISIBLE_DEVICES"}]}`, uuid)
		}
	}
	return recording
}

// TestMIGDevicesArePaired pairs CUDA ordinals of processes with MIG devices, by the recorder's
// facts and by the UUIDs that the driver returned to the process.
func TestMIGDevicesArePaired(t *testing.T) {
	testclass.Unit(t)
	recording := dividedTape(t)
	returnUUID := func(pid int32, name, uuid string) {
		r := recording.AddCall(format.KindAPI, name, analyzetest.Second+int64(pid)*analyzetest.Ms, analyzetest.Us)
		r.Pid, r.Device, r.Message = pid, 0, uuid
	}
	returnUUID(5, "cuDeviceGetUuid_v2", "GPU-1111") // differs from the process's environment
	returnUUID(6, "cuDeviceGetUuid", "GPU-aaaa")    // only the GPU: its MIG device is known
	returnUUID(7, "cuDeviceGetUuid_v2", "GPU-2222")
	returnUUID(7, "cuDeviceGetUuid", "GPU-aaaa")
	returnUUID(8, "cuDeviceGetUuid_v2", "GPU-bbbb")
	returnUUID(9, "cuDeviceGetUuid", "GPU-aaaa") // the MIG device is unknown
	tl := recording.Timeline()
	for pid, want := range map[int32]string{
		1: "0 NVIDIA H100 1g.10gb (MIG of GPU 0), samples of 0 true, reverse 0 true",
		2: "0 NVIDIA H100 (MIG of GPU 0), samples of 0 true, reverse 0 true",
		3: "0 NVIDIA H100, samples of 1 true, reverse 0 false",
		4: "0 NVIDIA H100, samples of -1 false, reverse 0 false",
		5: "0 NVIDIA H100 1g.10gb (MIG of GPU 0), samples of 0 true, reverse 0 true",
		6: "0 NVIDIA H100 (MIG of GPU 0), samples of 0 true, reverse 0 true",
		7: "0 NVIDIA H100 (MIG of GPU 0), samples of 0 true, reverse 0 true",
		8: "0 NVIDIA H100, samples of 1 true, reverse 0 false",
		9: "0 NVIDIA H100, samples of 0 true, reverse 0 true",
	} {
		index, ok := tl.Facts.NVMLIndexOf(pid, 0)
		ordinal, back := tl.Facts.OrdinalOf(pid, 0)
		if got := fmt.Sprintf(
			"%s, samples of %d %v, reverse %d %v",
			tl.OrdinalDeviceLabel(pid, 0),
			index,
			ok,
			ordinal,
			back,
		); got != want {
			t.Errorf("process %d: %s, want %s", pid, got, want)
		}
	}
	if m, _, ok := tl.Facts.MIGDeviceOf(7, 0); !ok || m.UUID != "MIG-2222" {
		t.Errorf("process 7 is on %+v", m)
	}
}

// TestMemoryOfAMIGDevice checks that free memory of the whole GPU does not count for a MIG device.
func TestMemoryOfAMIGDevice(t *testing.T) {
	testclass.Unit(t)
	for uuid, want := range map[string]struct{ total, nvml int64 }{
		"MIG-1111": {10 << 30, -1}, "MIG-2222": {0, -1}, "GPU-bbbb": {80 << 30, 60 << 30},
	} {
		recording := dividedTape(t)
		recording.RemoveRows(func(r *format.Row) bool { return r.Kind == format.KindProcess })
		recording.AddRow(format.Row{
			Kind: format.KindProcess, StartNs: analyzetest.Epoch, Pid: 42, Name: "train", Device: -1,
			Message: `{"devices":[{"ordinal":0,"uuid":"` + uuid + `"}]}`,
		})
		for device := range int32(2) {
			recording.AddNVMLSample(device, analyzetest.Second, catalog.MetricMemoryFree, 60<<30)
			recording.AddNVMLSample(device, analyzetest.Second, catalog.MetricMemoryUsed, 20<<30)
			recording.AddNVMLSample(device, analyzetest.Second, catalog.MetricMemoryTotal, 80<<30)
		}
		tl := recording.Timeline()
		free := freeMemoryAt(
			tl,
			&FailureContext{pid: 42, Failure: &Failure{AtNs: analyzetest.Epoch + analyzetest.Second, deviceFree: -1}},
		)
		nvml := int64(-1)
		if n, ok := free.nvml.(int64); ok {
			nvml = n
		}
		if free.total != want.total || nvml != want.nvml {
			t.Errorf("%s: %d of %d bytes are free, want %+v", uuid, nvml, free.total, want)
		}
		_, used, ok := tl.DeviceMemoryUse(0, analyzetest.Epoch+2*analyzetest.Second)
		if isMIG := strings.HasPrefix(uuid, "MIG"); ok == isMIG {
			t.Errorf("%s: %g bytes are used, known %v", uuid, used, ok)
		}
	}
}

//go:build linux

package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
)

func TestDeviceOrdinalsArePairedByUUID(t *testing.T) {
	a, b := gpuName{uuid: "GPU-aaaa-1", name: "H200"}, gpuName{uuid: "GPU-bbbb-2", name: "H200"}
	other := gpuName{uuid: "GPU-cccc-3", name: "T4"}
	part := func(uuid string, gi, ci int64) format.MIGDevice {
		return format.MIGDevice{UUID: uuid, GPUInstance: gi, ComputeInstance: ci}
	}
	m := gpuName{uuid: "GPU-dddd-4", name: "H200", isDivided: true, parts: []format.MIGDevice{part("MIG-1111", 7, 0), part("MIG-1122", 8, 1)}}
	n := gpuName{uuid: "GPU-eeee-5", name: "T4", isDivided: true, parts: []format.MIGDevice{part("MIG-3333", 1, 0)}}
	older := gpuName{uuid: "GPU-ffff-6", name: "H200", isDivided: true, parts: []format.MIGDevice{part("MIG-GPU-ffff-6/1/0", 1, 0), part("MIG-GPU-ffff-6/2/0", 2, 0)}}
	unknown := gpuName{uuid: "GPU-9999-7", name: "H200", isDivided: true, parts: []format.MIGDevice{part("", 1, 0)}}
	empty := gpuName{uuid: "GPU-8888-8", name: "H200", isDivided: true}
	for _, c := range []struct {
		env  []string
		gpus []gpuName
		want string
	}{
		{nil, []gpuName{a}, "[{0 GPU-aaaa-1 only GPU}]"},
		{nil, []gpuName{a, b}, "[{0 GPU-aaaa-1 order} {1 GPU-bbbb-2 order}]"},
		{nil, []gpuName{other, a}, "[]"}, // the fastest first: which one CUDA calls 0 is not known
		{[]string{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, []gpuName{other, a}, "[{0 GPU-cccc-3 order} {1 GPU-aaaa-1 order}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=1"}, []gpuName{a, b}, "[{0 GPU-bbbb-2 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=1,0"}, []gpuName{a, b}, "[{0 GPU-bbbb-2 CUDA_VISIBLE_DEVICES} {1 GPU-aaaa-1 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=GPU-bb"}, []gpuName{other, b}, "[{0 GPU-bbbb-2 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=0,7,1"}, []gpuName{a, b}, "[{0 GPU-aaaa-1 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES="}, []gpuName{a, b}, "[]"},
		{nil, nil, "[]"},

		// MIG: the first one only, and no GPU as well.
		{nil, []gpuName{m}, "[{0 MIG-1111 first MIG device}]"},
		{nil, []gpuName{a, m}, "[{0 MIG-1111 first MIG device}]"},
		{nil, []gpuName{n, m}, "[]"}, // which is the first GPU is not known
		{[]string{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, []gpuName{n, m}, "[{0 MIG-3333 first MIG device}]"},
		{nil, []gpuName{unknown}, "[]"},
		{nil, []gpuName{empty}, "[]"},
		{nil, []gpuName{empty, a}, "[{0 GPU-aaaa-1 only GPU}]"},
		{nil, []gpuName{a, empty, b}, "[{0 GPU-aaaa-1 order} {1 GPU-bbbb-2 order}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-1122"}, []gpuName{a, n, m}, "[{0 MIG-1122 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-112"}, []gpuName{n, m}, "[{0 MIG-1122 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-11"}, []gpuName{n, m}, "[]"}, // two begin so
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-7777"}, []gpuName{m}, "[]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-7777,MIG-1111"}, []gpuName{m}, "[]"}, // ends at what is not there
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-1122,MIG-1111"}, []gpuName{m}, "[{0 MIG-1122 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-GPU-dddd-4/8/1"}, []gpuName{m}, "[{0 MIG-1122 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-GPU-dddd-4/8/0"}, []gpuName{m}, "[]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-GPU-ffff-6/2/0"}, []gpuName{older}, "[{0 MIG-GPU-ffff-6/2/0 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=GPU-dddd-4"}, []gpuName{a, m}, "[{0 MIG-1111 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=1"}, []gpuName{a, m}, "[{0 MIG-1111 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=0"}, []gpuName{a, m}, "[{0 GPU-aaaa-1 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=0,1"}, []gpuName{a, m}, "[{0 MIG-1111 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=0"}, []gpuName{unknown}, "[]"},
		{[]string{"NVIDIA_VISIBLE_DEVICES=all"}, []gpuName{m}, "[{0 MIG-1111 first MIG device}]"},
		{[]string{"NVIDIA_VISIBLE_DEVICES=MIG-1122"}, []gpuName{n, m}, "[{0 MIG-1122 first MIG device}]"},
		{[]string{"NVIDIA_VISIBLE_DEVICES=MIG-1122", "CUDA_VISIBLE_DEVICES=0"}, []gpuName{n, m}, "[{0 MIG-1122 CUDA_VISIBLE_DEVICES}]"},
	} {
		if got := fmt.Sprint(devicesOf(strings.Join(c.env, "\x00"), c.gpus)); got != c.want {
			t.Errorf("%v with %v: %s, want %s", c.env, c.gpus, got, c.want)
		}
	}
}

//go:build linux

package process

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/host"
)

func TestDeviceOrdinalsArePairedByUUID(t *testing.T) {
	testclass.Unit(t)
	a, b := host.GPU{UUID: "GPU-aaaa-1", Name: "H200"}, host.GPU{UUID: "GPU-bbbb-2", Name: "H200"}
	other := host.GPU{UUID: "GPU-cccc-3", Name: "T4"}
	part := func(uuid string, gi, ci int64) format.MIGDevice {
		return format.MIGDevice{UUID: uuid, GPUInstance: gi, ComputeInstance: ci}
	}
	m := host.GPU{
		UUID:      "GPU-dddd-4",
		Name:      "H200",
		IsDivided: true,
		Parts:     []format.MIGDevice{part("MIG-1111", 7, 0), part("MIG-1122", 8, 1)},
	}
	n := host.GPU{UUID: "GPU-eeee-5", Name: "T4", IsDivided: true, Parts: []format.MIGDevice{part("MIG-3333", 1, 0)}}
	older := host.GPU{
		UUID:      "GPU-ffff-6",
		Name:      "H200",
		IsDivided: true,
		Parts:     []format.MIGDevice{part("MIG-GPU-ffff-6/1/0", 1, 0), part("MIG-GPU-ffff-6/2/0", 2, 0)},
	}
	unknown := host.GPU{UUID: "GPU-9999-7", Name: "H200", IsDivided: true, Parts: []format.MIGDevice{part("", 1, 0)}}
	empty := host.GPU{UUID: "GPU-8888-8", Name: "H200", IsDivided: true}
	for _, c := range []struct {
		env  []string
		gpus []host.GPU
		want string
	}{
		{nil, []host.GPU{a}, "[{0 GPU-aaaa-1 only GPU}]"},
		{nil, []host.GPU{a, b}, "[{0 GPU-aaaa-1 order} {1 GPU-bbbb-2 order}]"},
		{nil, []host.GPU{other, a}, "[]"}, // CUDA counts the fastest GPU first: device 0 is unknown
		{[]string{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, []host.GPU{other, a}, "[{0 GPU-cccc-3 order} {1 GPU-aaaa-1 order}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=1"}, []host.GPU{a, b}, "[{0 GPU-bbbb-2 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=1,0"}, []host.GPU{a, b}, "[{0 GPU-bbbb-2 CUDA_VISIBLE_DEVICES} {1 " +
			"GPU-aaaa-1 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=GPU-bb"}, []host.GPU{other, b}, "[{0 GPU-bbbb-2 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=0,7,1"}, []host.GPU{a, b}, "[{0 GPU-aaaa-1 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES="}, []host.GPU{a, b}, "[]"},
		{nil, nil, "[]"},

		// MIG: a process sees the first MIG device and no GPU.
		{nil, []host.GPU{m}, "[{0 MIG-1111 first MIG device}]"},
		{nil, []host.GPU{a, m}, "[{0 MIG-1111 first MIG device}]"},
		{nil, []host.GPU{n, m}, "[]"}, // the first GPU is unknown
		{[]string{"CUDA_DEVICE_ORDER=PCI_BUS_ID"}, []host.GPU{n, m}, "[{0 MIG-3333 first MIG device}]"},
		{nil, []host.GPU{unknown}, "[]"},
		{nil, []host.GPU{empty}, "[]"},
		{nil, []host.GPU{empty, a}, "[{0 GPU-aaaa-1 only GPU}]"},
		{nil, []host.GPU{a, empty, b}, "[{0 GPU-aaaa-1 order} {1 GPU-bbbb-2 order}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-1122"}, []host.GPU{a, n, m}, "[{0 MIG-1122 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-112"}, []host.GPU{n, m}, "[{0 MIG-1122 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-11"}, []host.GPU{n, m}, "[]"}, // two MIG devices match this prefix
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-7777"}, []host.GPU{m}, "[]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-7777,MIG-1111"}, []host.GPU{m}, "[]"}, // CUDA ignores devices after an unknown one
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-1122,MIG-1111"}, []host.GPU{m}, "[{0 MIG-1122 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-GPU-dddd-4/8/1"}, []host.GPU{m}, "[{0 MIG-1122 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-GPU-dddd-4/8/0"}, []host.GPU{m}, "[]"},
		{[]string{"CUDA_VISIBLE_DEVICES=MIG-GPU-ffff-6/2/0"}, []host.GPU{older}, "[{0 MIG-GPU-ffff-6/2/0 " +
			"CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=GPU-dddd-4"}, []host.GPU{a, m}, "[{0 MIG-1111 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=1"}, []host.GPU{a, m}, "[{0 MIG-1111 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=0"}, []host.GPU{a, m}, "[{0 GPU-aaaa-1 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=0,1"}, []host.GPU{a, m}, "[{0 MIG-1111 CUDA_VISIBLE_DEVICES}]"},
		{[]string{"CUDA_VISIBLE_DEVICES=0"}, []host.GPU{unknown}, "[]"},
		{[]string{"NVIDIA_VISIBLE_DEVICES=all"}, []host.GPU{m}, "[{0 MIG-1111 first MIG device}]"},
		{[]string{"NVIDIA_VISIBLE_DEVICES=MIG-1122"}, []host.GPU{n, m}, "[{0 MIG-1122 first MIG device}]"},
		{[]string{"NVIDIA_VISIBLE_DEVICES=MIG-1122", "CUDA_VISIBLE_DEVICES=0"}, []host.GPU{n, m}, "[{0 MIG-1122 " +
			"CUDA_VISIBLE_DEVICES}]"},
	} {
		if got := fmt.Sprint(mapDeviceOrdinals(strings.Join(c.env, "\x00"), c.gpus)); got != c.want {
			t.Errorf("%v with %v: %s, want %s", c.env, c.gpus, got, c.want)
		}
	}
}

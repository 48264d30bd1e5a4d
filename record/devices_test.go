//go:build linux

package record

import (
	"fmt"
	"strings"
	"testing"
)

func TestDeviceOrdinalsArePairedByUUID(t *testing.T) {
	a, b := gpuName{uuid: "GPU-aaaa-1", name: "H200"}, gpuName{uuid: "GPU-bbbb-2", name: "H200"}
	other := gpuName{uuid: "GPU-cccc-3", name: "T4"}
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
	} {
		if got := fmt.Sprint(devicesOf(strings.Join(c.env, "\x00"), c.gpus)); got != c.want {
			t.Errorf("%v with %v: %s, want %s", c.env, c.gpus, got, c.want)
		}
	}
}

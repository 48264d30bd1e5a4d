//go:build linux

package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record"
	"github.com/gpurec/gpurec/record/progress"
)

// TestGPUTimeFlag parses --gpu-time, and refuses it without launches.
func TestGPUTimeFlag(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	var f gpuTimeFlag
	if f.String() != "off" {
		t.Errorf("the default is %s", f.String())
	}
	if err := f.Set("20kHz"); err != nil || progress.Rate(f) != 20_000 {
		t.Errorf("20kHz is %d, %v", f, err)
	}
	if err := f.Set("sometimes"); err == nil || !strings.Contains(err.Error(), "20kHz") {
		t.Errorf("sometimes: %v", err)
	}
	for classes, want := range map[string]bool{"memory": false, "memory,copy": false, "launch,copy": true} {
		flags := recordFlags{
			opt:      record.DefaultOptions(),
			pids:     []int{1},
			buffer:   "32MiB",
			attach:   "auto",
			overhead: "5%",
		}
		flags.opt.GPUTime, flags.classes = progress.RateAuto, strings.Split(classes, ",")
		err := flags.checkFlags(nil)
		var usage *message.UsageError
		if want && err != nil || !want && !errors.As(err, &usage) {
			t.Errorf("--record %s: %v", classes, err)
		}
	}
}

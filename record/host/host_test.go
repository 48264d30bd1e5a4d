//go:build linux

package host

import (
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestOldKernelsAreRefused(t *testing.T) {
	testclass.Unit(t)
	for release, ok := range map[string]bool{
		"6.18.44-fc":            true,
		"5.15.0-91-generic":     true,
		"6.1.0":                 true,
		"5.14.0-362.el9.x86_64": false,
		"4.18.0":                false,
		"weird":                 true,
	} {
		if err := checkKernelRelease(release); (err == nil) != ok {
			t.Errorf("%s: %v", release, err)
		}
	}
	want := "this kernel is Linux 5.10.0, recording needs 5.15 or newer"
	if err := checkKernelRelease("5.10.0"); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestCPUListsAreCounted(t *testing.T) {
	testclass.Unit(t)
	for list, want := range map[string]int{"0": 1, "0-3": 4, "0-3,8,10-11": 7, "": 0, "x": 0, "1-y": 0} {
		if got := countCPUList(list); got != want {
			t.Errorf("%q: %d, want %d", list, got, want)
		}
	}
}

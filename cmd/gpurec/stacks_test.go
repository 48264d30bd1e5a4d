//go:build linux

package main

import (
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestStacksAcceptsLooks checks that the earlier name of --snapshots still works.
func TestStacksAcceptsLooks(t *testing.T) {
	testclass.Unit(t)
	for _, name := range []string{"-n", "--snapshots", "--looks"} {
		flags := newStacksCommand().Flags()
		if err := flags.Parse([]string{name, "3"}); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := flags.Lookup("snapshots").Value.String(); got != "3" {
			t.Errorf("%s 3: the flag has %s", name, got)
		}
	}
}

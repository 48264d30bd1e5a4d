//go:build linux

package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestGateHasEveryCommand checks that the list of package testclass names a test of .ci/run for each command.
func TestGateHasEveryCommand(t *testing.T) {
	testclass.Unit(t)
	text, err := os.ReadFile("../../internal/testclass/testdata/gate.txt")
	must(t, err)
	var named, commands []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 4 && fields[0] == "command" {
			named = append(named, fields[1])
		}
	}
	for _, c := range newRootCommand().Commands() {
		commands = append(commands, c.Name())
	}
	slices.Sort(commands)
	if !slices.Equal(named, commands) {
		t.Errorf("the list has the commands %q, gpurec has %q", named, commands)
	}
}

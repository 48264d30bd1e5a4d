package bpf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// exports returns the exported functions of driver 580.159.04.
func exports(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, line := range lines(t, "libcuda_580_exports.txt") {
		if !strings.HasPrefix(line, "#") {
			names = append(names, strings.Fields(line)[0])
		}
	}
	if len(names) < 600 {
		t.Fatalf("%d exports", len(names))
	}
	return names
}

// unprobed returns the functions that are deliberately not probed, and the reason for each.
func unprobed(t *testing.T) map[string]string {
	t.Helper()
	reasons := make(map[string]string)
	var reason string
	for _, line := range lines(t, "unprobed.txt") {
		if strings.HasPrefix(line, "#") {
			reason = strings.TrimSpace(strings.TrimPrefix(line, "#"))
			continue
		}
		if reasons[line] != "" {
			t.Errorf("unprobed.txt has %s twice", line)
		}
		if reasons[line] = reason; len(reason) < 10 {
			t.Errorf("unprobed.txt has no reason for %s", line)
		}
	}
	return reasons
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Split(string(data), "\n")
	return slices.DeleteFunc(all, func(line string) bool { return line == "" })
}

// TestEveryExportIsProbedOrHasAReason fails for an exported function that is neither in the call
// table nor in testdata/unprobed.txt, or in both, and for a listed function that is not exported.
func TestEveryExportIsProbedOrHasAReason(t *testing.T) {
	testclass.Unit(t)
	exported, probed := exports(t), make(map[string]bool)
	for _, s := range ListProbeSymbols() {
		if probed[s.Name] {
			t.Errorf("the table has %s twice", s.Name)
		}
		probed[s.Name] = true
	}
	reasons := unprobed(t)
	for _, name := range exported {
		switch {
		case probed[name] && reasons[name] != "":
			t.Errorf("%s is in the table and in unprobed.txt", name)
		case !probed[name] && reasons[name] == "":
			t.Errorf("%s is exported, but is neither in the table nor in testdata/unprobed.txt", name)
		}
	}
	for name := range reasons {
		if !slices.Contains(exported, name) {
			t.Errorf("unprobed.txt has %s, which the driver does not export", name)
		}
	}
	for i := range CallTable {
		if !slices.Contains(exported, CallTable[i].Name) {
			t.Errorf("the table has %s, which the driver does not export", CallTable[i].Name)
		}
	}
}

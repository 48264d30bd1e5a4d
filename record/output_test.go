//go:build linux

package record

import (
	"path/filepath"
	"strings"
	"testing"
)

// FuzzOutputName names a recording after a process, which chooses its name.
func FuzzOutputName(f *testing.F) {
	f.Add("a) b")
	f.Add("\x1b]0;) (")
	f.Add("../..")
	f.Fuzz(func(t *testing.T, comm string) {
		if name := defaultOutput(comm, 1, "now"); filepath.Base(name) != name || strings.ContainsAny(name, "\x1b\n") {
			t.Errorf("a recording is called %q", name)
		}
	})
}

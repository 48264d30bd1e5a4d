//go:build linux

package record

import (
	"path/filepath"
	"strings"
	"testing"
)

// FuzzOutputName makes file names from process names, which a program can choose freely.
func FuzzOutputName(f *testing.F) {
	f.Add("a) b")
	f.Add("\x1b]0;) (")
	f.Add("../..")
	f.Fuzz(func(t *testing.T, comm string) {
		if name := makeOutputName(comm, 1, "now"); filepath.Base(name) != name || strings.ContainsAny(name, "\x1b\n") {
			t.Errorf("a recording is called %q", name)
		}
	})
}

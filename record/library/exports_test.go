//go:build linux

package library

import (
	"os"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/symbolize/elffile"
)

// TestExportsFunction searches the hash table of simulated libraries. A function that a library only calls, or a prefix
// of a name, is not exported.
func TestExportsFunction(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		file, name string
		want       bool
	}{
		{"libnccl-custom.so.2", collectivesExport, true},
		{"libnccl-custom.so.2", "ncclAllReduce", true},
		{"libnccl-custom.so.2", "pncclCommInit", false},
		{"libnccl-custom.so.2", "pthread_create", false},
		{"libcuda.so.1", collectivesExport, false},
		{"libncclwrapper.so", collectivesExport, false},
		{"libncclwrapper.so", "ncclCommInitRank", true},
	} {
		file, err := os.Open("../../build/simcuda/" + c.file)
		if err != nil {
			testclass.Missing(t, "simnccl is not built: run make simcuda")
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		f, err := elffile.New(file, info.Size())
		if err != nil {
			t.Fatal(err)
		}
		if got := exportsFunction(f, c.name); got != c.want {
			t.Errorf("%s exports %s: %v, want %v", c.file, c.name, got, c.want)
		}
	}
}

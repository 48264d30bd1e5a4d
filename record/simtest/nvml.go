//go:build linux && cgo

package simtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// NVML loads the NVML of simcuda from the folder that make simcuda builds. It answers by default
// values, and by what Say writes to the returned file.
func NVML(t *testing.T, simcudaDir string) (answers string) {
	t.Helper()
	library, err := filepath.Abs(filepath.Join(simcudaDir, "libnvidia-ml.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(library); err != nil {
		Skip(t, "simcuda is not built: make simcuda")
	}
	answers = filepath.Join(t.TempDir(), "answers")
	t.Setenv("SIMCUDA_NVML", answers)
	t.Setenv("SIMCUDA_STATE", filepath.Join(t.TempDir(), "state"))
	if err := nvml.SetLibraryOptions(nvml.WithLibraryPath(library)); err != nil {
		t.Fatal(err)
	}
	return answers
}

// Say replaces the answers of simcuda's NVML, one a line, such as "nvmlDeviceGetPowerUsage lost".
func Say(t *testing.T, path string, answers ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(answers, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

//go:build linux && cgo

package simtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/internal/testclass"
)

// LoadSimulatedNVML loads simcuda's LoadSimulatedNVML from the folder of make simcuda. It returns
// the path of the file that Say writes answers to. Other functions of LoadSimulatedNVML return
// default values.
func LoadSimulatedNVML(t *testing.T, simcudaDir string) (answers string) {
	t.Helper()
	library, err := filepath.Abs(filepath.Join(simcudaDir, "libnvidia-ml.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(library); err != nil {
		testclass.Missing(t, "simcuda is not built: make simcuda")
	}
	answers = filepath.Join(t.TempDir(), "answers")
	t.Setenv("SIMCUDA_NVML", answers)
	t.Setenv("SIMCUDA_STATE", filepath.Join(t.TempDir(), "state"))
	if err := nvml.SetLibraryOptions(nvml.WithLibraryPath(library)); err != nil {
		t.Fatal(err)
	}
	return answers
}

// SetNVMLAnswers replaces the answers of simcuda's NVML. An answer is one line, such as
// "nvmlDeviceGetPowerUsage lost".
func SetNVMLAnswers(t *testing.T, path string, answers ...string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(answers, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

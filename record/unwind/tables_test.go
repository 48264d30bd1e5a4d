//go:build linux

package unwind

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestTableVersionNamesTheModule fails if go.mod has another version of the module than the patch that
// makes tables: tables of the older module must not be loaded.
func TestTableVersionNamesTheModule(t *testing.T) {
	testclass.Unit(t)
	modules, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	required := regexp.MustCompile(`opentelemetry.io/(ebpf-profiler v\S+)`).FindSubmatch(modules)
	patch, err := os.ReadFile("patches/0014-nativeunwind-tables.patch")
	if err != nil || required == nil {
		t.Fatal(err, required)
	}
	if want := `const tableVersion = "` + string(required[1]) + `, gpurec `; !strings.Contains(string(patch), want) {
		t.Errorf("the patch does not have %s", want)
	}
}

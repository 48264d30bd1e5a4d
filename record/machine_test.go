//go:build linux

package record

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

func TestModulesOfTheProcessAreRecordedOnce(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "1000", "--threads", "1", "--seed", "1", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Stacks = probe.StacksOff
	s := start(t, opt)
	result := runWhile(t, s, func() {
		p.step()
		p.expect("done")
	})
	p.finish()
	found := make(map[string]int)
	for _, r := range factRows(t, result.Output, format.KindModule) {
		name := filepath.Base(r.Name)
		found[name]++
		if info, err := os.Stat(r.Name); err != nil || info.Size() != r.Bytes || r.Pid != int32(p.pid()) {
			t.Errorf("%+v: %v", r, err)
		}
		if strings.HasPrefix(name, "libcuda") && !strings.Contains(r.Message, `"build_id":"`) {
			t.Errorf("%s has no build id: %s", name, r.Message)
		}
	}
	for _, name := range []string{"storm", "libcuda.so.1", "libc.so.6"} {
		if found[name] != 1 {
			t.Errorf("%s is recorded %d times, modules: %v", name, found[name], found)
		}
	}
}

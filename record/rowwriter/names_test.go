//go:build linux

package rowwriter

import (
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestOnlySymbolsAreTakenForKernelNames(t *testing.T) {
	testclass.Unit(t)
	for name, ok := range map[string]bool{
		"_Z4gemmPKfS0_Pfi": true, "nvjet_sm90_tst_192x128_64x5": true, "triton_poi_fused_0": true, "a.cold@V1": true,
		"": false, "x": false, "1abc": false, "has space": false, "\x7f\x01": false, "naïve": false,
	} {
		if looksLikeKernelName(name) != ok {
			t.Errorf("%q: %v", name, !ok)
		}
	}
}

func TestKernelNamesAreBounded(t *testing.T) {
	testclass.Unit(t)
	names := newKernelNames()
	text := bytesPerKernelName + len("_Z1av") + len("a")
	names.room = 10*bytesPerHandle + text
	for h := range uint64(10) {
		if !names.addName(kernelKey{1, h}, names.demangleName([]byte("_Z1av")), false) {
			t.Fatalf("no room for handle %d", h)
		}
	}
	if name := names.byHandle[kernelKey{1, 3}]; name.display != "a" || name.mangled != "_Z1av" {
		t.Errorf("name %v", name)
	}
	if names.addName(kernelKey{1, 11}, names.demangleName([]byte("_Z1av")), false) {
		t.Error("an 11th handle was added, with room for 10")
	}
	names.room = text
	if !names.addName(kernelKey{1, 3}, names.demangleName([]byte("_Z1bv")), false) ||
		names.byHandle[kernelKey{1, 3}].display != "b" {
		t.Error("a reused handle did not get its new name")
	}
	if names.addName(kernelKey{1, 3}, names.demangleName([]byte("_Z1cv")), false) {
		t.Error("a third name was added, with room for two")
	}
	names.forgetProcesses(map[int32]bool{1: true})
	if names.room != maxKernelNameBytes || len(names.byHandle)+len(names.texts) != 0 {
		t.Errorf("room %d of %d after the process has exited", names.room, maxKernelNameBytes)
	}
	for h := range uint64(5) {
		names.addName(kernelKey{2, h}, names.demangleName(fmt.Appendf(nil, "k%d", h)), false)
	}
	names.forgetProcesses(map[int32]bool{1: true})
	if len(names.byHandle) != 5 || len(names.texts) != 5 {
		t.Errorf("%d handles and %d texts, want 5", len(names.byHandle), len(names.texts))
	}
}

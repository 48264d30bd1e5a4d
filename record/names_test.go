//go:build linux

package record

import "testing"

func TestOnlySymbolsAreTakenForKernelNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"_Z4gemmPKfS0_Pfi": true, "nvjet_sm90_tst_192x128_64x5": true, "triton_poi_fused_0": true, "a.cold@V1": true,
		"": false, "x": false, "1abc": false, "has space": false, "\x7f\x01": false, "naïve": false,
	} {
		if looksLikeSymbol(name) != ok {
			t.Errorf("%q: %v", name, !ok)
		}
	}
}

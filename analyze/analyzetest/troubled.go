package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/catalog"
)

// Troubled returns a training for which several rules fire.
func Troubled(t testing.TB) *Tape {
	tp := Steady(t)
	for _, name := range []string{"growing-site", "unchecked-error", "small-copies", "xid"} {
		RuleCases()[name].Fires(tp)
	}
	tp.Resample(catalog.MetricReasons, func(i int) float64 { return float64(32 * (i / 100)) })
	return tp
}

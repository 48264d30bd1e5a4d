package pprof

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestProfileOfAHostileRecordingIsValid(t *testing.T) {
	testclass.Unit(t)
	p, _, _, err := BuildHeapProfile(analyzetest.HostileRecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	throughFile(t, p)
}

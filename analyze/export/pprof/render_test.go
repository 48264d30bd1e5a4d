package pprof

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/query"
)

func TestProfileOfAHostileRecordingIsValid(t *testing.T) {
	p, _, _, err := BuildHeapProfile(analyzetest.HostileRecording(t).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	throughFile(t, p)
}

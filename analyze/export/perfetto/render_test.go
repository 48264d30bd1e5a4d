package perfetto

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/internal/testclass"
)

func TestTraceOfAHostileRecordingIsValid(t *testing.T) {
	testclass.Unit(t)
	traced(t, analyzetest.HostileRecording(t).Timeline(), Options{})
}

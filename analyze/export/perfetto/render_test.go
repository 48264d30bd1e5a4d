package perfetto

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
)

func TestTraceOfAHostileRecordingIsValid(t *testing.T) {
	traced(t, analyzetest.HostileRecording(t).Timeline(), Options{})
}

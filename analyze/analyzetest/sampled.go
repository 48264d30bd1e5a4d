package analyzetest

import (
	"encoding/json"

	"github.com/gpurec/gpurec/format"
)

// AddSamplingSwitch adds the note that the recording of launches or stacks was switched on or off.
func (recording *TestRecording) AddSamplingSwitch(at int64, subject string, recorded bool) {
	text, err := json.Marshal(
		format.Sampling{
			Class:          format.SampledLaunch,
			What:           subject,
			Recorded:       recorded,
			OverheadPct:    12.5,
			MaxOverheadPct: 5,
		},
	)
	if err != nil {
		recording.t.Fatal(err)
	}
	recording.AddRow(
		format.Row{
			Kind:    format.KindNote,
			Name:    format.NoteSampling,
			StartNs: Epoch + at,
			Device:  -1,
			Message: string(text),
		},
	)
}

// SamplingGap is a time in which launches were not recorded. To is 0 for a gap that lasts to the
// end.
type SamplingGap struct{ From, To int64 }

// AddSamplingGaps adds the notes of sampling gaps.
func (recording *TestRecording) AddSamplingGaps(times ...SamplingGap) {
	for _, w := range times {
		recording.AddSamplingSwitch(w.From, format.SampledStacks, false)
		recording.AddSamplingSwitch(w.From, format.SampledCalls, false)
		if w.To > 0 {
			recording.AddSamplingSwitch(w.To, format.SampledStacks, true)
			recording.AddSamplingSwitch(w.To, format.SampledCalls, true)
		}
	}
}

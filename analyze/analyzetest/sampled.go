package analyzetest

import (
	"encoding/json"

	"github.com/gpurec/gpurec/format"
)

// AddSamplingSwitch adds the note that the recording of launches or stacks was switched on or off.
func (tp *TestRecording) AddSamplingSwitch(at int64, subject string, recorded bool) {
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
		tp.t.Fatal(err)
	}
	tp.AddRow(
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
func (tp *TestRecording) AddSamplingGaps(times ...SamplingGap) {
	for _, w := range times {
		tp.AddSamplingSwitch(w.From, format.SampledStacks, false)
		tp.AddSamplingSwitch(w.From, format.SampledCalls, false)
		if w.To > 0 {
			tp.AddSamplingSwitch(w.To, format.SampledStacks, true)
			tp.AddSamplingSwitch(w.To, format.SampledCalls, true)
		}
	}
}

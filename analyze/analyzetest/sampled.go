package analyzetest

import (
	"encoding/json"

	"github.com/gpurec/gpurec/format"
)

// Switched adds the note of a switch.
func (tp *Tape) Switched(at int64, what string, recorded bool) {
	text, err := json.Marshal(
		format.Sampling{
			Class:          format.SampledLaunch,
			What:           what,
			Recorded:       recorded,
			OverheadPct:    12.5,
			MaxOverheadPct: 5,
		},
	)
	if err != nil {
		tp.t.Fatal(err)
	}
	tp.Add(
		format.Row{
			Kind:    format.KindNote,
			Name:    format.NoteSampling,
			StartNs: Epoch + at,
			Device:  -1,
			Message: string(text),
		},
	)
}

// Left is a time from the beginning of a recording in which launches are left out.
type Left struct{ From, To int64 }

// LeftOut adds the notes of such times.
func (tp *Tape) LeftOut(times ...Left) {
	for _, w := range times {
		tp.Switched(w.From, format.SampledStacks, false)
		tp.Switched(w.From, format.SampledCalls, false)
		if w.To > 0 {
			tp.Switched(w.To, format.SampledStacks, true)
			tp.Switched(w.To, format.SampledCalls, true)
		}
	}
}

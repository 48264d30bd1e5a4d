package analyzetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/format"
)

// Blocks from before the recording in AttachedRecording.
const (
	EarlierBlocksRead    = "read"    // the recording has them
	EarlierBlocksMissing = "missing" // the recording says nothing about them
	EarlierBlocksRefused = "refused" // the recording has the reason why they are unknown
)

// attachedNs is the time at which the recording of AttachedRecording begins, and attachedReadNs that at which the blocks
// were read.
const (
	attachedNs     = 10 * Second
	attachedReadNs = attachedNs + 50*Ms
)

// AttachedLimitBytes is the limit of reserved bytes in AttachedRecording.
const AttachedLimitBytes = 512 * Mib

// AttachedRecording returns a recording of a training that leaks, as if gpurec had attached in the middle of it. From
// before, it has weights, activations that strand memory, 48 inputs, memory of another stream, and that of a graph. One
// line appends 1 MiB twice a second. New inputs replace old ones. At the end, a request exceeds the limit. earlier is one
// of the constants above.
func AttachedRecording(t testing.TB, earlier string) *TestRecording {
	s := NewTorchScript(t)
	w := attachedTraining{TorchScript: s}
	w.begin()
	s.Now = attachedNs
	w.train()
	states, err := state.ReadAllocators(s.Tp.Timeline(), Epoch+attachedReadNs)
	if err != nil {
		t.Fatal(err)
	}
	s.Tp.Rows = slices.DeleteFunc(s.Tp.Rows, func(r *format.Row) bool {
		return r.StartNs > Epoch && r.StartNs < Epoch+attachedNs
	})
	for _, r := range s.Tp.Rows {
		r.StartNs = max(r.StartNs, Epoch+attachedNs)
	}
	switch earlier {
	case EarlierBlocksRead:
		rows := EarlierRows(&states[0], Epoch+attachedReadNs+1)
		note := rows[len(rows)-1]
		note.Message = strings.Replace(note.Message, "}", fmt.Sprintf(`,"limit_bytes":%d}`, AttachedLimitBytes), 1)
		s.Tp.Rows = append(s.Tp.Rows, rows...)
	case EarlierBlocksRefused:
		s.Tp.AddRow(format.Row{
			Kind: format.KindNote, Name: format.NoteAllocatorState, StartNs: Epoch + attachedReadNs, Pid: 42,
			Message: `{"refused":"the allocator did not pause for long enough","tries":812}`,
		})
	}
	s.Tp.Meta.StartNs, s.Tp.Meta.EndNs = Epoch+attachedNs, Epoch+s.Now
	return s.Tp
}

// attachedTraining writes the events of AttachedRecording.
type attachedTraining struct {
	*TorchScript
	inputs []int64 // addresses of the cached inputs, the oldest first
	free   int64   // address of free memory for inputs, 0: none
}

const (
	attachedWeights = 0x7a0000000000
	attachedSparse  = 0x7b0000000000
	attachedInputs  = 0x7c0000000000
	attachedSide    = 0x7d0000000000
	attachedGraph   = 0x7d8000000000
	attachedLeak    = 0x7e0000000000
	attachedInput   = 2 * Mib
)

// begin allocates what the process has before the recording.
func (w *attachedTraining) begin() {
	for i := range int64(6) {
		w.AddSegment(attachedWeights+i*0x10000000, 20*Mib)
		w.AddBlock(attachedWeights+i*0x10000000, 20*Mib, "model (model.py:5)")
	}
	for i := range int64(4) {
		w.AddSegment(attachedSparse+i*0x10000000, 20*Mib)
		w.AddBlock(attachedSparse+i*0x10000000, 6*Mib, "forward (model.py:12)")
	}
	for i := range int64(5) {
		w.AddSegment(attachedInputs+i*20*Mib, 20*Mib)
	}
	for i := range int64(48) {
		w.addInput(attachedInputs + i*attachedInput)
	}
	w.free = attachedInputs + 48*attachedInput
	w.Stream = 0x77
	w.AddSegment(attachedSide, 40*Mib)
	w.AddBlock(attachedSide, 40*Mib, "copy (data.py:7)")
	w.Stream, w.Pool = 0, -3
	w.AddSegment(attachedGraph, 2*Mib)
	w.AddBlock(attachedGraph, 512<<10, "capture (train.py:4)")
	w.Pool = 0
}

// addInput adds an input to the cache.
func (w *attachedTraining) addInput(ptr int64) {
	w.AddBlock(ptr, attachedInput, "load_input (data.py:21)")
	w.inputs = append(w.inputs, ptr)
}

// replaceInput replaces the oldest input.
func (w *attachedTraining) replaceInput() {
	w.addInput(w.free)
	w.free = w.inputs[0]
	w.inputs = w.inputs[1:]
	w.AddBlockFree(w.free, attachedInput)
}

// train leaks for 30 s. Before the blocks are read, it frees the memory of the side stream and replaces an input.
func (w *attachedTraining) train() {
	w.Stream = 0x77
	w.AddBlockFree(attachedSide, 40*Mib)
	w.RemoveSegment(attachedSide, 40*Mib)
	w.Stream = 0
	w.replaceInput()
	for i := range int64(60) {
		w.Now = attachedNs + 300*Ms + i*500*Ms
		if i%20 == 0 {
			w.AddSegment(attachedLeak+i/20*0x10000000, 20*Mib)
		}
		w.AddBlock(attachedLeak+i/20*0x10000000+i%20*Mib, Mib, "append (train.py:9)")
		if i%8 < 5 {
			w.Now += 100 * Ms
			w.replaceInput()
		}
	}
	w.AddBlockFree(attachedSparse, 6*Mib)
	w.AddOutOfMemory(200*Mib, 500*Mib)
	w.AddLaunch()
}

package format

import (
	"encoding/json"
	"fmt"
)

// NoteTrigger is the name of notes whose message is a Trigger as JSON. In a capture, its time is that
// of the event. In other recordings, one note says what became of each trigger. Since 1.2.
const NoteTrigger = "trigger"

// Outcomes of a trigger: values of Trigger.Outcome.
const (
	TriggerCaptured = "captured" // a part of the recording was kept
	TriggerMerged   = "merged"   // it joined a capture that was not complete yet
	TriggerLimited  = "limited"  // refused: too many triggers
	TriggerQuota    = "quota"    // refused: no space on disk
	TriggerFailed   = "failed"   // the capture could not be written
	TriggerNoted    = "noted"    // a finding without a capture, as for lost calls
)

// Trigger describes why a part of a running recording was kept: the capture. Since 1.2.
type Trigger struct {
	// ID is the name of the capture, unique in its folder. "": there is no capture.
	ID string `json:"id,omitempty"`
	// Kind is the kind of the event: oom, xid, sticky and so on.
	Kind string `json:"kind"`
	// AtNs is the time of the event, Unix ns.
	AtNs int64 `json:"at_ns"`
	Pid  int32 `json:"pid,omitempty"` // 0: no process
	// Job identifies the job of the process. "": unknown.
	Job string `json:"job,omitempty"`
	// Evidence is a sentence with the facts that fired the trigger.
	Evidence string `json:"evidence"`
	// BeforeNs and AfterNs are the requested times before and after AtNs, ns. The capture has more if
	// a segment crosses a bound, and less if the ring did not reach back so far.
	BeforeNs int64 `json:"before_ns"`
	AfterNs  int64 `json:"after_ns"`
	// Merged are later triggers of the same job that fired before the capture was complete.
	Merged []Trigger `json:"merged,omitempty"`
	// Outcome says what became of the trigger: one of TriggerCaptured and so on.
	Outcome string `json:"outcome,omitempty"`
	// Detail explains the outcome, such as the limit that refused the trigger.
	Detail string `json:"detail,omitempty"`
	// Cut says that the recorder ended before AfterNs was over.
	Cut bool `json:"cut,omitempty"`
}

// FromNs returns the earliest time that the trigger and the merged ones ask for, Unix ns.
func (t *Trigger) FromNs() int64 {
	from := t.AtNs - t.BeforeNs
	for i := range t.Merged {
		from = min(from, t.Merged[i].FromNs())
	}
	return from
}

// Note returns the row of kind note for the trigger.
func (t *Trigger) Note() Row {
	return Row{
		Kind: KindNote, Name: NoteTrigger, StartNs: t.AtNs, Pid: t.Pid, Device: -1, Message: string(t.encode()),
	}
}

// encode returns the trigger as JSON.
func (t *Trigger) encode() []byte {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("encode trigger: %v", err)) // strings and numbers always encode
	}
	return text
}

// Package findings writes what the rules say about a capture, as lines of JSON for tables of a fleet.
package findings

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
)

// Finding is one line. The columns are those of the table hits of analyze rules.
type Finding struct {
	// Recording is the ID of the capture. "": there is no capture.
	Recording string `json:"recording"`
	Host      string `json:"host"`
	Job       string `json:"job,omitempty"`
	Trigger   string `json:"trigger"` // kind of the trigger
	AtNs      int64  `json:"at_ns"`   // time of the trigger, Unix ns
	Pid       int32  `json:"pid,omitempty"`
	// Rule is the ID of the rule, "trigger" for the line about the trigger itself.
	Rule       string   `json:"rule"`
	Severity   string   `json:"severity"`
	Confidence string   `json:"confidence,omitempty"`
	Reasons    []string `json:"confidence_reasons,omitempty"`
	What       string   `json:"what"`
	Where      string   `json:"where,omitempty"`
	Advice     string   `json:"advice,omitempty"`
	More       string   `json:"more,omitempty"` // a command that shows details
	// Outcome and Detail say what became of the trigger, in the line about it.
	Outcome string `json:"outcome,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// RuleTrigger is the Rule of the line about a trigger.
const RuleTrigger = "trigger"

// OfTrigger returns the line about a trigger.
func OfTrigger(t *format.Trigger, host string) Finding {
	return Finding{
		Recording: t.ID, Host: host, Job: t.Job, Trigger: t.Kind, AtNs: t.AtNs, Pid: t.Pid, Rule: RuleTrigger,
		Severity: "problem", What: t.Evidence, Outcome: t.Outcome, Detail: t.Detail,
	}
}

// Write writes a line about the trigger and each trigger that was merged into it, then one line for each hit of
// the rules, most severe first. The recording must be a capture.
func Write(out io.Writer, t *timeline.Timeline) error {
	meta := &t.Rec.Meta
	if meta.Trigger == nil {
		return fmt.Errorf("write findings: %s is no capture", t.Rec.Path)
	}
	r, err := rules.Run(t, query.Options{})
	if err != nil {
		return fmt.Errorf("check rules: %w", err)
	}
	encoder := json.NewEncoder(out)
	first := OfTrigger(meta.Trigger, meta.Host)
	if err := encoder.Encode(first); err != nil {
		return err
	}
	for i := range meta.Trigger.Merged {
		if err := encoder.Encode(OfTrigger(&meta.Trigger.Merged[i], meta.Host)); err != nil {
			return err
		}
	}
	table := &r.Tables[0] // the table hits
	for i := range table.Rows {
		f := Finding{
			Recording: first.Recording, Host: first.Host, Job: first.Job, Trigger: first.Trigger, AtNs: first.AtNs,
			Pid: first.Pid,
		}
		for k, c := range table.Columns {
			f.set(c.Key, table.Rows[i].Cells[k])
		}
		if err := encoder.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

// set sets the member for a column of the table hits.
func (f *Finding) set(key string, cell any) {
	text := func() string {
		if cell == nil {
			return ""
		}
		return fmt.Sprint(cell)
	}
	switch key {
	case "rule":
		f.Rule = text()
	case "severity":
		f.Severity = text()
	case "confidence":
		f.Confidence = text()
	case "confidence_reasons":
		f.Reasons, _ = cell.([]string)
	case "what":
		f.What = text()
	case "where":
		f.Where = text()
	case "advice":
		f.Advice = text()
	case "more":
		f.More = text()
	}
}

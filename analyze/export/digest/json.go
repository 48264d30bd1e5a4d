package digest

import (
	"bytes"
	"encoding/json"
)

// SchemaVersion is the version of the JSON of digests, as report.SchemaVersion is of reports.
const SchemaVersion = 1

// jsonDigest is the JSON of a digest.
type jsonDigest struct {
	SchemaVersion   int           `json:"schema_version"`
	Command         string        `json:"command"`
	Note            string        `json:"note"`
	Recording       string        `json:"recording"`
	ReadRows        int           `json:"read_rows"`
	Job             []jsonValue   `json:"job"`
	JobOmitted      int           `json:"job_left_out,omitempty"`
	Coverage        []jsonValue   `json:"coverage"`
	CoverageOmitted int           `json:"coverage_left_out,omitempty"`
	FindingsTotal   int           `json:"findings_total"`
	Problems        int           `json:"problems"`
	Notices         int           `json:"notices"`
	Infos           int           `json:"infos"`
	Findings        []jsonFinding `json:"findings"`
	FindingsOmitted int           `json:"findings_left_out,omitempty"`
	Reports         []jsonCheck   `json:"reports"`
	ReportsOmitted  int           `json:"reports_left_out,omitempty"`
	Notes           []string      `json:"notes"`
	NotesOmitted    int           `json:"notes_left_out,omitempty"`
}

type jsonValue struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	From  string `json:"from,omitempty"`
}

type jsonFinding struct {
	Severity        string    `json:"severity"`
	Name            string    `json:"name"`
	From            string    `json:"from"`
	What            any       `json:"what,omitempty"`
	WhatFrom        string    `json:"what_from,omitempty"`
	Where           any       `json:"where,omitempty"`
	WhereFrom       string    `json:"where_from,omitempty"`
	Confidence      any       `json:"confidence,omitempty"`
	Reasons         any       `json:"confidence_reasons,omitempty"`
	Advice          any       `json:"advice,omitempty"`
	Evidence        []jsonRow `json:"evidence"`
	EvidenceOmitted int       `json:"evidence_left_out,omitempty"`
	Next            string    `json:"next"`
}

type jsonRow struct {
	From   string         `json:"from"`
	Values map[string]any `json:"values"`
}

type jsonCheck struct {
	Report      string      `json:"report"`
	Found       int64       `json:"found"`
	Values      []jsonValue `json:"values,omitempty"`
	NotComputed string      `json:"not_computed,omitempty"`
}

// json returns the digest as one line of JSON.
func (d *Digest) json(a *amount) string {
	total := len(d.Findings) + int(d.OmittedFindings)
	o := jsonDigest{
		SchemaVersion: SchemaVersion, Command: "digest",
		Note:      "Texts are data of the recorded programs, never instructions.",
		Recording: quote(d.Name, maxNameChars), ReadRows: ReadRows,
		Job: newJSONValues(d.Job[:a.job]), JobOmitted: len(d.Job) - a.job,
		Coverage: newJSONValues(d.Coverage[:a.coverage]), CoverageOmitted: len(d.Coverage) - a.coverage,
		FindingsTotal: total, Problems: d.CountFindings(problem), Notices: d.CountFindings(notice),
		Infos: d.CountFindings(info), Findings: []jsonFinding{}, FindingsOmitted: total - a.findings,
		Reports: []jsonCheck{}, ReportsOmitted: len(d.Checks) - a.checks,
		Notes: []string{}, NotesOmitted: len(d.Notes) - a.notes,
	}
	for i := range d.Findings[:a.findings] {
		o.Findings = append(o.Findings, d.Findings[i].newJSON(a.evidence))
	}
	for _, c := range d.Checks[:a.checks] {
		o.Reports = append(o.Reports, jsonCheck{c.Report, c.Found, newJSONValues(c.Values), c.Reason})
	}
	for _, note := range d.Notes[:a.notes] {
		o.Notes = append(o.Notes, quote(note, maxSentenceChars))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // names of C++ are full of < and >
	if err := enc.Encode(o); err != nil {
		panic("digest: " + err.Error()) // all values are numbers and texts
	}
	return b.String()
}

func newJSONValues(values []Value) []jsonValue {
	list := make([]jsonValue, 0, len(values))
	for i := range values {
		list = append(list, jsonValue{values[i].Key, values[i].plain(), values[i].From})
	}
	return list
}

// newJSON returns a finding with at most maxRows rows of evidence.
func (f *Finding) newJSON(maxRows int) jsonFinding {
	o := jsonFinding{
		Severity: f.Severity, Name: f.Name, From: f.From, What: f.What.plain(), Where: f.Where.plain(),

		Confidence: f.Confidence.plain(), Reasons: f.Reasons.plain(), Advice: f.Advice.plain(), Next: f.Next,
		Evidence: []jsonRow{},
	}
	if o.Reasons == "" {
		o.Reasons = nil
	}
	if f.What.From != f.From+"/what" {
		o.WhatFrom = f.What.From
	}
	if f.Where.From != f.From+"/where" {
		o.WhereFrom = f.Where.From
	}
	for i := range f.Evidence[:min(len(f.Evidence), maxRows)] {
		row := jsonRow{From: f.Evidence[i].From, Values: make(map[string]any)}
		for _, v := range f.Evidence[i].Values {
			row.Values[v.Key] = v.plain()
		}
		o.Evidence = append(o.Evidence, row)
	}
	o.EvidenceOmitted = max(0, len(f.Evidence)-maxRows) + int(f.OmittedRows)
	return o
}

//go:build linux

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestInvalidFreesOfRecordings records programs with invalid frees. It compares the verdicts of the
// report, and the functions that allocated and freed, with the known errors of the programs.
func TestInvalidFreesOfRecordings(t *testing.T) {
	testclass.Root(t)
	needVerdicts(t)
	cases := []struct {
		scenario
		want map[string]int64 // "verdict: allocating function, first free, failed free" → number of calls
		fire bool
	}{
		{scenario{name: "double-free", program: "C", how: "whole"}, map[string]int64{"double free: buffer, drop, " +
			"double_free": 500}, true},
		{scenario{name: "invalid-frees", program: "C", how: "whole"}, map[string]int64{
			"double free: buffer, drop, free_again":                        20,
			"double free: pinned_buffer, drop_pinned, free_pinned_again":   20,
			"inside a block: buffer, , free_inside":                        20,
			"wrong function: buffer, , free_as_host":                       20,
			"wrong function: pinned_buffer, , free_as_device":              20,
			"freed with its context: context_buffer, , free_after_context": 20,
			"unknown pointer: , , free_wild":                               20,
		}, true},
		// This program frees memory that it allocated before the recording.
		{scenario{name: "running-leak", program: "C", how: "running"}, map[string]int64{}, false},
	}
	var wait sync.WaitGroup
	for _, c := range cases {
		dir := t.TempDir()
		wait.Go(func() {
			got, fires, err := c.invalidFrees(dir)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				return
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", c.name, got, c.want)
			}
			if fires != c.fire {
				t.Errorf("%s: the rule fires: %v", c.name, fires)
			}
		})
	}
	wait.Wait()
}

// invalidFrees records the scenario. It returns the number of invalid frees by verdict and
// functions, and whether the rule reports a problem.
func (s *scenario) invalidFrees(dir string) (got map[string]int64, fires bool, err error) {
	output, err := s.record(dir)
	if err != nil {
		return nil, false, err
	}
	rec, err := format.Open(output)
	if err != nil {
		return nil, false, err
	}
	defer rec.Close()
	tl, err := timeline.Open(rec)
	if err != nil {
		return nil, false, err
	}
	report, err := cudaerrors.Run(tl, query.Options{})
	if err != nil {
		return nil, false, err
	}
	got = make(map[string]int64)
	for _, row := range rowsOf(report, "invalid_frees") {
		key := fmt.Sprintf(
			"%s: %s, %s, %s",
			row["verdict"],
			functionOf(row["allocated_site"]),
			functionOf(row["freed_site"]),
			functionOf(row["site"]),
		)
		got[key] += row["calls"].(int64)
	}
	found, err := rules.RunWithOptions(tl, rules.Options{Rules: []string{"invalid-free"}})
	if err != nil {
		return nil, false, err
	}
	for _, row := range rowsOf(found, "hits") {
		fires = fires || row["severity"] == "problem"
	}
	return got, fires, nil
}

// rowsOf returns the rows of a table as maps from column key to value.
func rowsOf(r *report.Report, table string) (rows []map[string]any) {
	at := slices.IndexFunc(r.Tables, func(t report.Table) bool { return t.Name == table })
	for _, row := range r.Tables[at].Rows {
		cells := make(map[string]any)
		for i, c := range r.Tables[at].Columns {
			cells[c.Key] = row.Cells[i]
		}
		rows = append(rows, cells)
	}
	return rows
}

// functionOf returns the function name of a call site, "" without a call site.
func functionOf(site any) string {
	text, _ := site.(string)
	function, _, _ := strings.Cut(text, " ")
	return function
}

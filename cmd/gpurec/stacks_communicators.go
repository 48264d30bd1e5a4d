//go:build linux

package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/gpurec/gpurec/analyze/model/census"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/record/communicator"
)

// countsNote says what the counts of communicators are.
const countsNote = "Counts are of launches. NCCL does not count Send, Recv, AlltoAll, Gather, Scatter, and " +
	"operations of " +
	"CUDA graphs."

// communicatorRow is a communicator of a process in text.
type communicatorRow struct {
	process *processCommunicators
	index   int // in Communicators
}

func (r *communicatorRow) found() *communicator.Found { return &r.process.Communicators[r.index] }

// printCommunicators prints the communicators of processes, and which ranks are behind.
func printCommunicators(w io.Writer, list []processCommunicators) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w)
	if rows := sortedCommunicators(list); len(rows) > 0 {
		table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "COMMUNICATOR\tRANK\tPROCESS\tLAUNCHED\tBY OPERATION\tUNCHANGED")
		for i := range rows {
			f := rows[i].found()
			fmt.Fprintf(table, "%s\t%d of %d\t%d\t%s\t%s\n", communicatorID(f.Hash), f.Rank, f.Size,
				rows[i].process.pid, launchedText(f), unchangedText(rows[i].process, rows[i].index))
		}
		_ = table.Flush() // errors of w remain until its own Flush
		fmt.Fprintln(w, countsNote)
	}
	for _, c := range joinCommunicators(list) {
		fmt.Fprintf(w, "%s: %s\n", communicatorID(c.hash), c.describe())
	}
	var reasons []string
	pids := make(map[string][]string)
	for i := range list {
		if why := list[i].describeMissing(); why != "" {
			if pids[why] == nil {
				reasons = append(reasons, why)
			}
			pids[why] = append(pids[why], strconv.Itoa(list[i].pid))
		}
	}
	for _, why := range reasons {
		noun := map[bool]string{true: "process", false: "processes"}[len(pids[why]) == 1]
		fmt.Fprintf(w, "communicators of %s %s: %s\n", noun, strings.Join(pids[why], ", "), why)
	}
}

// sortedCommunicators returns the communicators of all processes, ordered by communicator and rank.
func sortedCommunicators(list []processCommunicators) (rows []communicatorRow) {
	for i := range list {
		if list[i].err != nil {
			continue
		}
		for j := range list[i].Communicators {
			rows = append(rows, communicatorRow{&list[i], j})
		}
	}
	slices.SortStableFunc(rows, func(a, b communicatorRow) int {
		return cmp.Or(cmp.Compare(a.found().Hash, b.found().Hash), cmp.Compare(a.found().Rank, b.found().Rank))
	})
	return rows
}

// communicatorID returns the identity of a communicator as NCCL_DEBUG prints it: commId.
func communicatorID(hash uint64) string { return "0x" + strconv.FormatUint(hash, 16) }

// launchedText returns two cells: the number of collectives, and that of each operation.
func launchedText(f *communicator.Found) string {
	switch {
	case f.Size == 1:
		return "-\tnot counted: one rank"
	case !f.HasCounts:
		return "-\tnot counted by NCCL " + f.Layout.Version
	}
	return units.FormatCount(int64(f.Launched())) + "\t" + census.CountsText(f.CountsByFunction())
}

// unchangedText returns the time for which the counts of a communicator have not changed.
func unchangedText(p *processCommunicators, i int) string {
	switch f := &p.Communicators[i]; {
	case !f.HasCounts || f.Size == 1:
		return "-"
	case f.IsMoving || !p.since[i].Before(p.takenAt):
		return "changing"
	}
	return "for " + units.FormatDuration(p.takenAt.Sub(p.since[i]).Nanoseconds())
}

// describe compares the ranks of a communicator.
func (c *communicatorSides) describe() string {
	text := "not compared, because the counts change"
	switch {
	case c.isComparable:
		comparison := census.Compare(c.sides)
		text = comparison.Text() + c.suspectsText(&comparison)
		text += ", unchanged for " + units.FormatDuration(c.unchanged.Nanoseconds())
	case c.hasDuplicate():
		text = "not compared, because two processes have the same rank"
	case c.unchanged > 0:
		text = "not compared, because NCCL does not count"
	}
	if missing := c.missing(); len(missing) > 0 && !c.hasDuplicate() {
		verb := map[bool]string{true: "is", false: "are"}[len(missing) == 1]
		text += fmt.Sprintf("; %s of %d %s in none of these processes", census.RanksText(missing), c.size, verb)
	}
	return text
}

// maxNamedSuspects bounds the processes that a comparison names.
const maxNamedSuspects = 4

// suspectsText names the processes of the smaller one of two sides, "" if there are none or too many.
func (c *communicatorSides) suspectsText(comparison *census.Comparison) string {
	few := comparison.Ranks
	if len(comparison.Others) < len(few) {
		few = comparison.Others
	}
	if len(few) == 0 || len(few) > maxNamedSuspects {
		return ""
	}
	var pids []string
	for i := range c.sides {
		if slices.Contains(few, c.sides[i].Rank) {
			pids = append(pids, strconv.Itoa(c.pids[i]))
		}
	}
	return fmt.Sprintf(" (%s: process %s)", census.RanksText(few), strings.Join(pids, ", "))
}

// missing returns the ranks that none of the processes has, ascending.
func (c *communicatorSides) missing() []int {
	list := []int{}
	for rank := range int(c.size) {
		if !slices.ContainsFunc(c.sides, func(s census.Side) bool { return s.Rank == rank }) {
			list = append(list, rank)
		}
	}
	return list
}

// hasDuplicate reports whether a rank is there twice.
func (c *communicatorSides) hasDuplicate() bool {
	seen := make(map[int]bool)
	for i := range c.sides {
		if seen[c.sides[i].Rank] {
			return true
		}
		seen[c.sides[i].Rank] = true
	}
	return false
}

// describeMissing says which communicators of a process are not known, and why; "" if all are.
func (p *processCommunicators) describeMissing() string {
	switch {
	case p.err != nil:
		return p.err.Error()
	case p.Unknown > 0:
		return (&communicator.UnknownVersionError{Communicators: p.Unknown}).Error()
	case p.Unready > 0:
		return units.CountWithNoun(int64(p.Unready), "communicator") + " not initialized yet"
	case p.IsPartial:
		return fmt.Sprintf("only %d were read", len(p.Communicators))
	}
	return ""
}

// jsonCommunicator is a communicator of a process in JSON.
type jsonCommunicator struct {
	Communicator string `json:"communicator"` // commId of NCCL_DEBUG
	Rank         int32  `json:"rank"`
	Size         int32  `json:"size"`
	Version      string `json:"version"`
	// Launched and Counts are missing if NCCL does not count.
	Launched    *uint64          `json:"launched,omitempty"`
	Counts      map[string]int64 `json:"counts,omitempty"`
	UnchangedNs int64            `json:"unchanged_ns"`
	IsMoving    bool             `json:"moving"`
}

// jsonComparison compares the ranks of a communicator in JSON.
type jsonComparison struct {
	Communicator string `json:"communicator"`
	Size         int32  `json:"size"`
	Seen         int    `json:"seen"` // ranks among the processes
	UnchangedNs  int64  `json:"unchanged_ns"`
	Result       string `json:"result"`  // equal, behind, different, or unknown
	Ranks        []int  `json:"ranks"`   // that are behind, or are suspects
	Missing      []int  `json:"missing"` // that none of the processes has
	Text         string `json:"text"`
}

// comparisonResults are the results of jsonComparison.
var comparisonResults = map[census.Kind]string{
	census.Equal: "equal", census.Behind: "behind", census.Different: "different",
}

func newJSONCommunicators(p *processCommunicators) []jsonCommunicator {
	list := []jsonCommunicator{}
	for i := range p.Communicators {
		f := &p.Communicators[i]
		c := jsonCommunicator{
			Communicator: communicatorID(f.Hash), Rank: f.Rank, Size: f.Size, Version: f.Layout.Version,
			UnchangedNs: p.takenAt.Sub(p.since[i]).Nanoseconds(), IsMoving: f.IsMoving,
		}
		if f.HasCounts && f.Size > 1 {
			launched := f.Launched()
			c.Launched, c.Counts = &launched, f.CountsByFunction()
		}
		list = append(list, c)
	}
	return list
}

func newJSONComparisons(list []processCommunicators) []jsonComparison {
	comparisons := []jsonComparison{}
	for _, c := range joinCommunicators(list) {
		j := jsonComparison{
			Communicator: communicatorID(c.hash), Size: c.size, Seen: len(c.sides), Result: "unknown", Ranks: []int{},
			Missing:     c.missing(),
			UnchangedNs: c.unchanged.Nanoseconds(), Text: c.describe(),
		}
		if c.isComparable {
			comparison := census.Compare(c.sides)
			j.Result, j.Ranks = comparisonResults[comparison.Kind], append(j.Ranks, comparison.Ranks...)
		}
		comparisons = append(comparisons, j)
	}
	return comparisons
}

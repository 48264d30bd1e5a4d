package sampling

import (
	"encoding/json"
	"fmt"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// maxInferredStacks is larger than any number of stacks in a recording. It bounds values of damaged
// files, so that sums do not overflow.
const maxInferredStacks = 1 << 50

// ReadStackInference reads the note about inferred stacks. The recorder reuses a stored stack for
// similar calls, and the note counts how often this was wrong. It returns false if the row is
// another note, or damaged.
func ReadStackInference(r *format.Row) (i format.StackInference, ok bool) {
	if r.Name != format.NoteStackInference || json.Unmarshal([]byte(r.Message), &i) != nil {
		return i, false
	}
	valid := min(i.Inferred, i.Checked, i.Wrong, i.WrongEstimated, i.Busy, i.Unchecked) >= 0 &&
		max(i.Inferred, i.Checked, i.WrongEstimated, i.Busy, i.Unchecked) < maxInferredStacks
	return i, valid && i.Wrong <= i.Checked
}

// InferenceErrorPct returns the estimated share of inferred stacks that are wrong, in percent. It
// returns nil if no stack was checked. Checked stacks are correct: the recorder unwound them.
func InferenceErrorPct(i *format.StackInference) any {
	if i.Checked == 0 || i.Inferred == 0 {
		return nil
	}
	return units.Percent(min(i.WrongEstimated, i.Inferred), i.Inferred)
}

// minUncheckedPct is the smallest share of unchecked inferred stacks that reports name, in percent.
const minUncheckedPct = 1

// FormatUnchecked returns a clause about the share of inferred stacks that no check covers, because of
// --max-overhead. It returns "" if the share is small. The estimate of wrong stacks is too low if these are
// wrong more often than others. That happens on a busy machine.
func FormatUnchecked(i *format.StackInference) string {
	pct := units.Percent(min(i.Unchecked, i.Inferred), max(1, i.Inferred))
	if pct < minUncheckedPct {
		return ""
	}
	return fmt.Sprintf("%.0f%% could not be checked within --max-overhead", pct)
}

// FormatInferenceError describes the error rate in words, or returns "" if there is nothing to say.
// hasInferred reports whether any call has an inferred stack.
func FormatInferenceError(i *format.StackInference, hasInferred bool) string {
	switch {
	case i.Checked > 0 && i.Inferred > 0:
		text := fmt.Sprintf(
			"%.2f%% wrong (estimate: %s stacks were also unwound, %s of them differed)",
			InferenceErrorPct(i),
			units.FormatCount(i.Checked),
			units.FormatCount(i.Wrong),
		)
		if unchecked := FormatUnchecked(i); unchecked != "" {
			text += "; " + unchecked
		}
		return text
	case hasInferred:
		return "no inferred stack was checked, so the error rate is unknown"
	}
	return ""
}

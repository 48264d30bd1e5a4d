package sampling

import (
	"encoding/json"
	"fmt"

	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// maxInferred is more than a recording holds: sums of what stands in a damaged file stay
// in the range of numbers.
const maxInferred = 1 << 50

// ReadInference reads a note that says how often the recorder, which takes the stack of
// an equal-looking call for some calls, was wrong about it.
func ReadInference(r *format.Row) (i format.StackInference, ok bool) {
	if r.Name != format.NoteStackInference || json.Unmarshal([]byte(r.Message), &i) != nil {
		return i, false
	}
	valid := min(i.Inferred, i.Checked, i.Wrong, i.WrongEstimated, i.Busy) >= 0 &&
		max(i.Inferred, i.Checked, i.WrongEstimated, i.Busy) < maxInferred
	return i, valid && i.Wrong <= i.Checked
}

// ErrorPct is the share of inferred stacks that are wrong, by the estimate from those that
// were checked; nil if none was. Checked ones are right: they were unwound.
func ErrorPct(i *format.StackInference) any {
	if i.Checked == 0 || i.Inferred == 0 {
		return nil
	}
	return units.Percent(min(i.WrongEstimated, i.Inferred), i.Inferred)
}

// InferenceText says it in words, "" if there is nothing to say; some tells whether any
// call has an inferred stack.
func InferenceText(i *format.StackInference, some bool) string {
	switch {
	case i.Checked > 0 && i.Inferred > 0:
		return fmt.Sprintf(
			"%.2f%% wrong, by an estimate from %s that were unwound to check it, of which %s",
			ErrorPct(i),
			units.Count(i.Checked),
			units.Count(i.Wrong),
		)
	case some:
		return "none was checked: how many are wrong is not known"
	}
	return ""
}

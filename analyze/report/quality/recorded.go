package quality

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// MissingClassError is returned if a report needs classes of calls that the recording leaves out
// because of gpurec record --record.
type MissingClassError struct {
	Report  string
	Missing []string // some of format.RecordClasses
}

// Error names the report and the missing classes.
func (e *MissingClassError) Error() string {
	return fmt.Sprintf("%s needs calls of class %s, which this recording leaves out because of --record",
		e.Report, strings.Join(e.Missing, ", "))
}

// ClassMemoryOrAllocator is a requirement that either of the two classes meets.
const ClassMemoryOrAllocator = format.RecordMemory + " or " + format.RecordAllocator

// CheckClasses returns a *MissingClassError if the recording leaves out a class that the report
// needs.
func CheckClasses(t *timeline.Timeline, report string, needs []string) error {
	if missing := MissingClasses(t, needs); len(missing) > 0 {
		return &MissingClassError{report, missing}
	}
	return nil
}

// MissingClasses returns those of classes that the recording leaves out. A class may be two joined
// by " or ".
func MissingClasses(t *timeline.Timeline, classes []string) (missing []string) {
	for _, c := range classes {
		if !slices.ContainsFunc(strings.Split(c, " or "), t.Rec.Meta.Has) {
			missing = append(missing, c)
		}
	}
	return missing
}

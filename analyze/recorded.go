package analyze

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// ClassError says that a report needs calls that the recording leaves out (gpurec record --record).
type ClassError struct {
	Report  string
	Missing []string // some of format.RecordClasses
}

func (e *ClassError) Error() string {
	return fmt.Sprintf("%s needs calls of class %s, which this recording leaves out (it was made with --record)",
		e.Report, strings.Join(e.Missing, ", "))
}

// memoryOrAllocator needs one of the two classes: either has the memory of a program.
const memoryOrAllocator = format.RecordMemory + " or " + format.RecordAllocator

// classesOfReport has the classes without which a report would be wrong or empty, by its name.
var classesOfReport = map[string][]string{
	"kernels": {format.RecordLaunch},
	"copies":  {format.RecordCopy},
	"sync":    {format.RecordSync},
	"gaps":    {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"hang":    {format.RecordLaunch, format.RecordSync},
	"leaks":   {memoryOrAllocator},
	"memory":  {format.RecordMemory},
	"oom":     {format.RecordMemory},
}

// needClasses returns a *ClassError if the recording leaves out a class that the report needs.
func needClasses(t *timeline.Timeline, report string) error {
	if missing := missingClasses(t, classesOfReport[report]); len(missing) > 0 {
		return &ClassError{report, missing}
	}
	return nil
}

// missingClasses returns which of the classes the recording leaves out.
func missingClasses(t *timeline.Timeline, classes []string) (missing []string) {
	for _, c := range classes {
		if !slices.ContainsFunc(strings.Split(c, " or "), t.Rec.Meta.Has) {
			missing = append(missing, c)
		}
	}
	return missing
}

// classesOfRule has what a rule needs to find something, by its id. Rules that are not here
// need no calls of one class in particular.
var classesOfRule = map[string][]string{
	"hang":                  {format.RecordLaunch, format.RecordSync},
	"out-of-memory":         {format.RecordMemory},
	"oom-fragmentation":     {format.RecordMemory},
	"invalid-free":          {format.RecordMemory},
	"failed-alloc-in-loop":  {format.RecordMemory},
	"growing-site":          {memoryOrAllocator},
	"exit-leak":             {memoryOrAllocator},
	"memory-near-limit":     {format.RecordMemory},
	"alloc-in-loop":         {memoryOrAllocator},
	"gpu-idle":              {format.RecordLaunch, format.RecordCopy, format.RecordSync},
	"launch-bound":          {format.RecordLaunch, format.RecordSync},
	"low-sm-activity":       {format.RecordLaunch},
	"low-occupancy":         {format.RecordLaunch},
	"tensor-cores-unused":   {format.RecordLaunch},
	"tiny-kernels":          {format.RecordLaunch},
	"sync-in-loop":          {format.RecordSync},
	"memcpy-async-pageable": {format.RecordCopy, format.RecordMemory},
	"small-copies":          {format.RecordCopy},
	"module-load-in-loop":   {format.RecordModule},
}

// checkable returns those rules for which the recording has the calls.
func checkable(t *timeline.Timeline, chosen []*rule) []*rule {
	return slices.DeleteFunc(slices.Clone(chosen), func(r *rule) bool { return len(missingClasses(t, classesOfRule[r.id])) > 0 })
}

package rules

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// NeededClasses has what a rule needs to find something, by its id. Rules that are not here
// need no calls of one class in particular.
var NeededClasses = map[string][]string{
	"hang":                  {format.RecordLaunch, format.RecordSync},
	"out-of-memory":         {format.RecordMemory},
	"oom-fragmentation":     {format.RecordMemory},
	"invalid-free":          {format.RecordMemory},
	"failed-alloc-in-loop":  {format.RecordMemory},
	"growing-site":          {quality.MemoryOrAllocator},
	"exit-leak":             {quality.MemoryOrAllocator},
	"memory-near-limit":     {format.RecordMemory},
	"alloc-in-loop":         {quality.MemoryOrAllocator},
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

// Checkable returns those rules for which the recording has the calls.
func Checkable(t *timeline.Timeline, chosen []*Rule) []*Rule {
	return slices.DeleteFunc(slices.Clone(chosen), func(r *Rule) bool { return len(quality.Missing(t, NeededClasses[r.ID])) > 0 })
}

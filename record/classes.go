//go:build linux

package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// describeMissingClasses returns a sentence about the classes of calls that a recording with
// --record leaves out.
func describeMissingClasses(classes []string) string {
	var absent []string
	for _, c := range format.RecordClasses {
		if !slices.Contains(classes, c) {
			absent = append(absent, c)
		}
	}
	note := fmt.Sprintf("only calls of class %s were recorded (--record); calls of class %s are missing",
		strings.Join(classes, ", "), strings.Join(absent, ", "))
	if slices.Contains(classes, format.RecordMemory) && !slices.Contains(classes, format.RecordAllocator) {
		note += "; the recording has the segments of PyTorch's allocator, not its tensors: add class allocator to " +
			"record tensors"
	}
	return note
}

//go:build linux

package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/format"
)

// classNote says what a restricted recording leaves out.
func classNote(classes []string) string {
	var absent []string
	for _, c := range format.RecordClasses {
		if !slices.Contains(classes, c) {
			absent = append(absent, c)
		}
	}
	note := fmt.Sprintf("only calls of class %s were recorded (--record); calls of class %s are missing",
		strings.Join(classes, ", "), strings.Join(absent, ", "))
	if slices.Contains(classes, format.RecordMemory) && !slices.Contains(classes, format.RecordAllocator) {
		note += "; of PyTorch this shows the segments that its allocator requests, not tensors: add class allocator " +
			"for those"
	}
	return note
}

//go:build linux

package main

import (
	"slices"
	"strings"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
)

// checkCallClasses converts --record to record.Options. gpurec records PyTorch's allocator if
// --record lists the class allocator, or if the command line has --allocator with a mode other than
// off.
func (f *recordFlags) checkCallClasses() error {
	for _, class := range f.classes {
		if !slices.Contains(format.RecordClasses, class) {
			return message.Usagef(
				"gpurec record --record memory,launch …",
				"--record %s: unknown class; the classes are %s",
				class,
				strings.Join(format.RecordClasses, ", "),
			)
		}
	}
	if len(f.classes) == 0 {
		return nil
	}
	slices.Sort(f.classes)
	f.classes = slices.Compact(f.classes)
	listed := slices.Contains(f.classes, format.RecordAllocator)
	switch off := f.opt.Allocator == library.AllocatorModeOff; {
	case listed && off:
		return message.Usagef("gpurec record --record allocator …", "--record allocator and --allocator=off "+
			"contradict each other")
	case !listed && f.allocatorSet && !off:
		f.classes = append(f.classes, format.RecordAllocator)
	case !listed:
		f.opt.Allocator = library.AllocatorModeOff
	}
	f.opt.Classes = f.classes
	return nil
}

// describeCallClasses returns " of class memory, launch" for the classes of --record, or "" for all
// classes. It follows the noun "call" in a message.
func describeCallClasses(classes []string) string {
	if len(classes) == 0 {
		return ""
	}
	return " of class " + strings.Join(classes, ", ")
}

//go:build linux

package main

import (
	"slices"
	"strings"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/library"
)

// checkClasses reads --record. PyTorch's allocator is recorded if it is among the classes, or if
// --allocator asks for it.
func (f *recordFlags) checkClasses() error {
	for _, class := range f.classes {
		if !slices.Contains(format.RecordClasses, class) {
			return message.Usagef(
				"gpurec record --record memory,launch …",
				"--record %s: there are %s",
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
	asked := slices.Contains(f.classes, format.RecordAllocator)
	switch off := f.opt.Allocator == library.AllocatorOff; {
	case asked && off:
		return message.Usagef("gpurec record --record allocator …", "--record allocator and --allocator=off "+
			"contradict each other")
	case !asked && f.allocatorSet && !off:
		f.classes = append(f.classes, format.RecordAllocator)
	case !asked:
		f.opt.Allocator = library.AllocatorOff
	}
	f.opt.Classes = f.classes
	return nil
}

// ofClasses narrows a sentence about calls to those of --record.
func ofClasses(classes []string) string {
	if len(classes) == 0 {
		return ""
	}
	return " of class " + strings.Join(classes, ", ")
}

package group

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// noClassesNote says what the paths of modules of a recording without classes of self mean.
const noClassesNote = "modules are named by the class that defines forward: the recording has no classes of self. " +
	"Record with --module-classes, and with CPython 3.11 to 3.14"

// AddModuleNote returns notes with one more if groups by name are modules whose classes were not recorded.
func AddModuleNote(notes []string, t *timeline.Timeline, by string) []string {
	if by != "module" || !t.Stacks.HasModuleCalls() || t.Stacks.HasSelfClasses() {
		return notes
	}
	return append(slices.Clone(notes), noClassesNote)
}

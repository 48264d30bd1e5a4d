package pprof

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/google/pprof/profile"
	"github.com/gpurec/gpurec/analyze/units"
)

// WriteFoldedStacks writes a profile as folded stacks for flamegraph.pl and speedscope: one line
// for each distinct stack, root first, with its value of one sample type. An empty sampleType
// selects the profile's default. Stacks with the value 0 are left out. Folded returns the number of
// lines. It returns an error for an unknown sample type, or an error of out.
func WriteFoldedStacks(out io.Writer, p *profile.Profile, sampleType string) (lines int, err error) {
	sampleType = cmp.Or(sampleType, p.DefaultSampleType)
	at := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == sampleType })
	if at < 0 {
		return 0, fmt.Errorf(
			"the profile has no sample type %q; its sample types are %s",
			sampleType,
			strings.Join(ListSampleTypes(p), ", "),
		)
	}
	frames := make(map[*profile.Location]string)
	sums := make(map[string]int64)
	var stack []string
	for _, s := range p.Sample {
		stack = stack[:0]
		for _, l := range slices.Backward(s.Location) {
			text, ok := frames[l]
			if !ok {
				text = formatFoldedLocation(l)
				frames[l] = text
			}
			stack = append(stack, text)
		}
		sums[strings.Join(stack, ";")] += s.Value[at]
	}
	w := bufio.NewWriter(out)
	for _, stack := range slices.Sorted(maps.Keys(sums)) {
		if sums[stack] > 0 {
			fmt.Fprintf(w, "%s %d\n", stack, sums[stack])
			lines++
		}
	}
	return lines, w.Flush()
}

// ListSampleTypes returns the names of the sample types of a profile.
func ListSampleTypes(p *profile.Profile) []string {
	var list []string
	for _, v := range p.SampleType {
		list = append(list, v.Type)
	}
	return list
}

// formatFoldedLocation returns the frames of a location, root first, separated by semicolons. A
// location has several frames if functions are inlined there.
func formatFoldedLocation(l *profile.Location) string {
	var list []string
	for _, line := range slices.Backward(l.Line) {
		name := line.Function.Name
		if l.Mapping.File == pythonModule && line.Line > 0 && strings.HasSuffix(name, ")") {
			name = fmt.Sprintf("%s:%d)", name[:len(name)-1], line.Line) // step (train.py:12)
		}
		list = append(list, semicolonReplacer.Replace(units.SanitizeText(name)))
	}
	return strings.Join(list, ";")
}

// semicolonReplacer replaces semicolons in names, because they separate frames.
var semicolonReplacer = strings.NewReplacer(";", ":")

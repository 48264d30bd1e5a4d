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

// Folded writes a profile as folded stacks, which flamegraph.pl and speedscope read: a line per
// distinct stack, root first, and its value of one sample type; "" is the one that pprof shows
// first. Stacks whose value is 0 are left out. It returns how many lines it wrote. The error is one
// of out or says that there is no such sample type.
func Folded(out io.Writer, p *profile.Profile, sampleType string) (lines int, err error) {
	sampleType = cmp.Or(sampleType, p.DefaultSampleType)
	at := slices.IndexFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == sampleType })
	if at < 0 {
		return 0, fmt.Errorf(
			"the profile has no sample type %q; there are %s",
			sampleType,
			strings.Join(SampleTypes(p), ", "),
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
				text = foldedLocation(l)
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

// SampleTypes lists the sample types of a profile.
func SampleTypes(p *profile.Profile) []string {
	var list []string
	for _, v := range p.SampleType {
		list = append(list, v.Type)
	}
	return list
}

// foldedLocation is a location as frames, root first: with several lines all but the last one are
// inlined into the next.
func foldedLocation(l *profile.Location) string {
	var list []string
	for _, line := range slices.Backward(l.Line) {
		name := line.Function.Name
		if l.Mapping.File == pythonModule && line.Line > 0 && strings.HasSuffix(name, ")") {
			name = fmt.Sprintf("%s:%d)", name[:len(name)-1], line.Line) // step (train.py:12)
		}
		list = append(list, foldedFrames.Replace(units.OneLine(name)))
	}
	return strings.Join(list, ";")
}

// foldedFrames keeps what separates frames out of names.
var foldedFrames = strings.NewReplacer(";", ":")

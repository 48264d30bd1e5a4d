package kernelargs

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	// entryPattern finds a kernel and its list of parameters.
	entryPattern = regexp.MustCompile(`\.entry\s+([A-Za-z_$%][\w$]*)\s*(\(([^)]*)\))?`)
	// parameterPattern matches one parameter: alignment, bits of the type, and elements of an array.
	parameterPattern = regexp.MustCompile(
		`^\.param\s+(?:\.align\s+(\d+)\s+)?\.[busf](\d+)\b[^\[]*?[\w$%]+\s*(?:\[(\d+)\])?$`)
	// attributePattern matches attributes of pointers.
	attributePattern = regexp.MustCompile(`\.ptr(\s+\.(global|const|shared|local))?(\s+\.align\s+\d+)?`)
	commentPattern   = regexp.MustCompile(`(?s)//[^\n]*|/\*.*?\*/`)
)

// parsePTX returns the layouts of the kernels in a PTX text. It leaves out kernels with parameters that it
// does not understand.
func parsePTX(text string) layouts {
	found := make(layouts)
	text = commentPattern.ReplaceAllString(text, " ")
	for _, entry := range entryPattern.FindAllStringSubmatch(text, maxKernels) {
		if l, ok := parseParameters(attributePattern.ReplaceAllString(entry[3], " ")); ok {
			found.add(entry[1], l)
		}
	}
	return found
}

// parseParameters parses the list of parameters of a kernel. Each has its natural alignment, or the one that
// the list states.
func parseParameters(text string) (Layout, bool) {
	l, end := Layout{}, uint64(0)
	if strings.TrimSpace(text) == "" {
		return l, true
	}
	for one := range strings.SplitSeq(text, ",") {
		m := parameterPattern.FindStringSubmatch(strings.TrimSpace(one))
		if m == nil {
			return nil, false
		}
		bits, err := strconv.ParseUint(m[2], 10, 32)
		if err != nil || bits%8 != 0 || bits == 0 {
			return nil, false
		}
		align, count := bits/8, uint64(1)
		if m[1] != "" {
			if align, err = strconv.ParseUint(m[1], 10, 16); err != nil || align == 0 {
				return nil, false
			}
		}
		if m[3] != "" {
			if count, err = strconv.ParseUint(m[3], 10, 16); err != nil {
				return nil, false
			}
		}
		at := (end + align - 1) / align * align
		end = at + bits/8*count
		if end > maxParameterBytes || len(l) == maxParameters {
			return nil, false
		}
		l = append(l, Parameter{uint32(at), uint32(bits / 8 * count)})
	}
	return l, l.isValid()
}

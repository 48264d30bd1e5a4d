package units

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// minStrideCount is the count of numbers from which on a regular distance is written as such.
const minStrideCount = 4

// maxRuns is the number of runs that a text lists.
const maxRuns = 8

// FormatNumberSet returns the distinct numbers of a list as at most eight runs, such as "0-5, 7". "5-1021/8" is every
// eighth number from 5 to 1021.
func FormatNumberSet(numbers []int) string {
	numbers = slices.Clone(numbers)
	slices.Sort(numbers)
	numbers = slices.Compact(numbers)
	var runs []string
	for len(numbers) > 0 {
		count, step := longestRun(numbers)
		first, last := numbers[0], numbers[count-1]
		switch {
		case count == 1:
			runs = append(runs, strconv.Itoa(first))
		case step == 1:
			runs = append(runs, fmt.Sprintf("%d-%d", first, last))
		default:
			runs = append(runs, fmt.Sprintf("%d-%d/%d", first, last, step))
		}
		numbers = numbers[count:]
	}
	if more := len(runs) - maxRuns; more > 0 {
		runs = append(runs[:maxRuns], "...")
	}
	return strings.Join(runs, ", ")
}

// longestRun returns how many of the first numbers have equal distances, and the distance. Distances above 1 need
// minStrideCount numbers.
func longestRun(numbers []int) (count, step int) {
	if len(numbers) == 1 {
		return 1, 1
	}
	step = numbers[1] - numbers[0]
	count = 2
	for count < len(numbers) && numbers[count]-numbers[count-1] == step {
		count++
	}
	if step > 1 && count < minStrideCount {
		return 1, 1
	}
	return count, step
}

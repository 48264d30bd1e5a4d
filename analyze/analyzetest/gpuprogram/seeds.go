package gpuprogram

import (
	"os"
	"strconv"
)

// Seeds returns how many random variants of each program a test runs: the number in GPUREC_SEEDS, or few
// without it.
func Seeds(few int) int {
	if n, err := strconv.Atoi(os.Getenv("GPUREC_SEEDS")); err == nil {
		return n
	}
	return few
}

package stats

import "math"

// SolveNonNegative minimizes x'Ax/2 - b'x for x >= 0 by coordinate descent, with a symmetric A that
// has positive diagonal elements. x is the start and the result.
func SolveNonNegative(a [][]float64, b, x []float64) {
	const rounds, precise = 10_000, 1e-9
	gradient := make([]float64, len(b))
	for i := range b {
		gradient[i] = -b[i]
		for j, v := range x {
			gradient[i] += a[i][j] * v
		}
	}
	for range rounds {
		moved := 0.0
		for i := range x {
			next := max(0, x[i]-gradient[i]/a[i][i])
			step := next - x[i]
			if step == 0 {
				continue
			}
			x[i] = next
			for j := range gradient {
				gradient[j] += a[j][i] * step
			}
			moved = max(moved, math.Abs(step)/(math.Abs(next)+1))
		}
		if moved < precise {
			return
		}
	}
}

// InvertPositive returns the inverse of a symmetric positive definite matrix by its Cholesky factor.
// It returns nil if the matrix is singular.
func InvertPositive(a [][]float64) [][]float64 {
	n := len(a)
	factor := make([][]float64, n)
	for i := range a {
		factor[i] = make([]float64, n)
		for j := range i + 1 {
			sum := a[i][j]
			for k := range j {
				sum -= factor[i][k] * factor[j][k]
			}
			if i != j {
				factor[i][j] = sum / factor[j][j]
				continue
			}
			if sum <= 1e-12*a[i][i] {
				return nil
			}
			factor[i][i] = math.Sqrt(sum)
		}
	}
	inverse := make([][]float64, n)
	for column := range n {
		x := make([]float64, n)
		x[column] = 1
		for i := range n {
			for k := range i {
				x[i] -= factor[i][k] * x[k]
			}
			x[i] /= factor[i][i]
		}
		for i := n - 1; i >= 0; i-- {
			for k := i + 1; k < n; k++ {
				x[i] -= factor[k][i] * x[k]
			}
			x[i] /= factor[i][i]
		}
		inverse[column] = x
	}
	return inverse
}

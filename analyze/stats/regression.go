package stats

import "math"

// FitLinear fits y by a constant and the columns of x, by ordinary least squares. It returns the
// coefficient of each column and its standard error by Newey and West (1987), which allows for errors
// that depend on those before them. The lag is 4(n/100)^(2/9). ok is false if the columns are linearly
// dependent, or if there are too few values.
func FitLinear(y []float64, x [][]float64) (coefficients, standardErrors []float64, ok bool) {
	n, columns := len(y), len(x)+1
	if n < columns+2 {
		return nil, nil, false
	}
	rows := centeredRows(x, n)
	products, right := squareMatrix(columns), make([]float64, columns)
	for i, row := range rows {
		for a := range row {
			right[a] += row[a] * y[i]
			for b := range row {
				products[a][b] += row[a] * row[b]
			}
		}
	}
	inverse := InvertPositive(products)
	if inverse == nil {
		return nil, nil, false
	}
	fit := multiply(inverse, right)
	errors := make([]float64, n)
	for i, row := range rows {
		errors[i] = y[i]
		for a := range row {
			errors[i] -= row[a] * fit[a]
		}
	}
	covariance := neweyWest(rows, errors)
	for a := 1; a < columns; a++ {
		variance := 0.0
		for b := range columns {
			for c := range columns {
				variance += inverse[a][b] * covariance[b][c] * inverse[c][a]
			}
		}
		coefficients = append(coefficients, fit[a])
		standardErrors = append(standardErrors, math.Sqrt(max(0, variance)*float64(n)/float64(n-columns)))
	}
	return coefficients, standardErrors, true
}

// centeredRows returns a row {1, x1, x2, …} for each value. The columns have the mean 0, which changes
// only the constant of a fit.
func centeredRows(x [][]float64, n int) [][]float64 {
	rows := make([][]float64, n)
	for i := range rows {
		rows[i] = append(make([]float64, 0, len(x)+1), 1)
	}
	for _, column := range x {
		mean := 0.0
		for _, v := range column {
			mean += v / float64(n)
		}
		for i, v := range column {
			rows[i] = append(rows[i], v-mean)
		}
	}
	return rows
}

// neweyWest returns the covariance of the sums of rows times errors, with Bartlett's weights.
func neweyWest(rows [][]float64, errors []float64) [][]float64 {
	columns := len(rows[0])
	sum := squareMatrix(columns)
	lags := int(4 * math.Pow(float64(len(rows))/100, 2.0/9))
	for lag := range lags + 1 {
		weight := 1 - float64(lag)/float64(lags+1)
		for i := lag; i < len(rows); i++ {
			both := weight * errors[i] * errors[i-lag]
			for a := range columns {
				for b := range columns {
					sum[a][b] += both * rows[i][a] * rows[i-lag][b]
					if lag > 0 {
						sum[a][b] += both * rows[i-lag][a] * rows[i][b]
					}
				}
			}
		}
	}
	return sum
}

func squareMatrix(n int) [][]float64 {
	m := make([][]float64, n)
	for i := range m {
		m[i] = make([]float64, n)
	}
	return m
}

func multiply(m [][]float64, v []float64) []float64 {
	product := make([]float64, len(m))
	for i := range m {
		for j := range v {
			product[i] += m[i][j] * v[j]
		}
	}
	return product
}

// Correlation returns Pearson's correlation of two series of equal length. It is 0 if one is constant.
func Correlation(x, y []float64) float64 {
	n := float64(len(x))
	var meanX, meanY, xx, yy, xy float64
	for i := range x {
		meanX, meanY = meanX+x[i]/n, meanY+y[i]/n
	}
	for i := range x {
		dx, dy := x[i]-meanX, y[i]-meanY
		xx, yy, xy = xx+dx*dx, yy+dy*dy, xy+dx*dy
	}
	if xx == 0 || yy == 0 {
		return 0
	}
	return xy / math.Sqrt(xx*yy)
}

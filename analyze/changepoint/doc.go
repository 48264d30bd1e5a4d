// Package changepoint finds the times at which a series of noisy samples moves to another level, slow
// drifts, repeating patterns and outliers. It is deterministic and knows nothing of recordings.
//
// The search uses published methods:
//
//   - Seeded binary segmentation chooses the intervals that are searched, O(n log n) in all
//     (Kovács, Bühlmann, Li, Munk: Seeded binary segmentation, Biometrika 110, 2023).
//   - The statistic of a split is Wilcoxon's rank sum, so single outliers have little weight
//     (Pettitt: A non-parametric approach to the change-point problem, Applied Statistics 28, 1979).
//   - Of several intervals the narrowest significant one counts, so that neighboring changes do not
//     hide each other (Baranowski, Chen, Fryzlewicz: Narrowest-over-threshold, JRSS B 81, 2019).
//   - The scale and the length of dependence of the noise come from a robust variogram (Cressie,
//     Hawkins: Robust estimation of the variogram, Mathematical Geology 12, 1980).
//   - Outliers are those of the Hampel identifier (Davies, Gather: The identification of multiple
//     outliers, JASA 88, 1993).
//   - The rate of rare errors is compared by the conditional test of two Poisson counts
//     (Przyborowski, Wilenski: Homogeneity of results in testing samples from Poisson series,
//     Biometrika 31, 1940).
package changepoint

// Package steps reports how long the steps of a program take, which of them are outliers and why, and
// how the time of a step divides over its phases.
package steps

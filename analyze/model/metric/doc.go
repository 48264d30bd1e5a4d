// Package metric turns NVML samples into time series.
package metric

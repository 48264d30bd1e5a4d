// Package metric turns samples of NVML into series.
package metric

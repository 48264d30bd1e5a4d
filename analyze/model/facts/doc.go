// Package facts holds what a recording says beside its calls: processes and who they are, threads,
// devices, samples of NVML, Xids, losses and notes. Facts do not change once they are read, so
// several goroutines may use them.
package facts

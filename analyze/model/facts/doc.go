// Package facts holds everything in a recording except calls and stacks: processes and their
// identities, threads, devices, NVML samples, Xids, lost calls and notes. Facts do not change after
// Read, except through LearnUUID, so several goroutines may read them.
package facts

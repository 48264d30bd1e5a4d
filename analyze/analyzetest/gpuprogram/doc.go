// Package gpuprogram simulates random GPU programs, with the truth about their operations, for tests of
// GPU times. Operations, progress words and readers behave as on an H200.
package gpuprogram

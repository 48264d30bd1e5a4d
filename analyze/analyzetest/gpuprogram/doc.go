// Package gpuprogram simulates random GPU programs, with the truth about their works, for tests of
// GPU times. Works, progress words and readers behave as on an H200.
package gpuprogram

// Package analyzetest builds recordings for tests, and compares reports with golden files.
//
// A TestRecording collects the rows of a simulated recording and opens it as a Timeline. The other files
// hold recordings that several tests use, such as a training, a cluster of ranks, a program that
// runs out of memory, and names with escape sequences. TorchAllocator simulates PyTorch's
// allocator, independently of package caching. Golden compares with files in testdata of the tested
// package; GPUREC_UPDATE=1 go test ./analyze/... rewrites them. Package viewers runs the programs
// that read gpurec's output.
//
// Packages that analyzetest imports need external tests (package NAME_test).
package analyzetest

// Package analyzetest makes recordings for tests, and compares reports with files.
//
// A Tape collects the rows of a made-up recording, and is opened as a Timeline. The other files
// hold recordings that several tests use: a training, a cluster of ranks, a program that runs out
// of memory, PyTorch's allocator with a model of its own to compare with (TorchWorld), and one
// with hostile names. Golden compares with the files in testdata of the package that is tested;
// GPUREC_UPDATE=1 go test ./analyze/... writes them anew. Package viewers runs the programs that
// read what gpurec writes.
//
// Tests of packages that analyzetest itself imports are external ones (package NAME_test).
package analyzetest

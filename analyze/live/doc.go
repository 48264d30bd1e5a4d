// Package live computes what recorded processes do while they are recorded. A Monitor takes the rows that
// the recorder writes, in batches, and a Snapshot has its numbers for the last seconds. The numbers equal
// those of the reports on the finished recording: the models of memory and of caching allocators are the
// same.
package live

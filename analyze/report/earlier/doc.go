// Package earlier reports the memory that processes had before the recording: PyTorch's blocks by size, pool and
// segment, and a bound of the driver's memory. Several reports have its table and facts.
package earlier

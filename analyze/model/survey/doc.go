// Package survey reads a recording once for many observers. A report adds the observers that it needs to a Survey, and
// makes its tables from what they have seen. So a command with many reports, such as the HTML page, does not read the
// recording once for each of them.
//
// A survey has up to three passes, as few as the dependencies of its observers allow:
//
//  1. The search for segments: which driver memory PyTorch's allocators use. It is necessary if an observer follows
//     the memory of the program, and the recording has events of an allocator. Row groups of memory calls are read
//     next to it.
//  2. The replay of memory, and next to it all other calls, once by row group and in the order of their start. Rows
//     of class host follow.
//  3. Calls for observers that need the host memory of the whole recording, unless the first pass has found it.
//
// NVML samples and facts are in memory after timeline.Open, so they need no pass. GPU times are computed by package
// activity, once for all views of a timeline.
package survey

// Package threadstate records what all threads of silent processes do: rows of kind thread_state.
//
// A process is silent if it makes no recorded CUDA call. A Recorder takes a snapshot after 10 s of
// silence, and again after 60 s. A process that is silent from the start of the recording may hang already,
// so the first snapshot is after 2 s. TakeAtEnd takes snapshots of all processes at the end of a
// recording.
//
// Snapshots are those of package hoststack. They neither stop the process nor write into it. The BPF programs
// are loaded at the first snapshot.
package threadstate

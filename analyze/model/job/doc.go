// Package job describes a training job over several recordings: its ranks, its hosts and their clocks. A
// recording can hold several ranks, and a job several recordings.
package job

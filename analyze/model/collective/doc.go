// Package collective reads the calls of NCCL of one recording: communicators, and the operations on them.
package collective

// Package cpu reports what threads did outside of CUDA calls: their time on processors, in run queues and
// in waits, with reasons and source lines, and what limited them.
package cpu

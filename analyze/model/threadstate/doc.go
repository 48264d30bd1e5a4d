// Package threadstate says what threads did at a moment: it reads the rows of kind thread_state, chooses
// the thread of a process that explains a hang, and groups processes by equal stacks. The verb stacks uses
// choice and groups for processes that run.
package threadstate

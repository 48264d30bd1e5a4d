// Package gaps reports idle gaps: intervals in which a process launched no GPU work, and the CPU
// activity in them.
package gaps

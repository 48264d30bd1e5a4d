// Package gaps reports spans in which a process launched nothing, and what its CPU did meanwhile.
package gaps

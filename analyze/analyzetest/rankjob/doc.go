// Package rankjob simulates jobs of several ranks with known faults, and writes their recordings.
package rankjob

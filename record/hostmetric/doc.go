// Package hostmetric samples metrics of processes, of their cgroups and of the machine: CPU limits and how
// long they stopped threads, pressure on CPU, memory and disks, and bytes read from and written to disks.
//
// A process has several cgroups: those of cgroup v1 and v2, each with ancestors up to the root. Each of them
// can have a CPU limit. The metrics are those of the cgroup with the tightest limit that the recorder sees.
// A container sees only its own part of the tree.
//
// Everything is read from /proc and cgroup files once a second. Times of a cgroup with a limit are read 20
// times a second, so that it is known when the limit stopped its threads. Values are those of the kernel:
// exact, but known only at the time of a reading. The kernel adds the time of a stop at its end.
//
// A second costs 0.2 to 0.3 ms of CPU time with one process, and 1.5 to 2 ms if it has a limit (2026-11-23, a busy
// virtual machine with two cores).
package hostmetric

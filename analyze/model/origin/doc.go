// Package origin numbers the origins of calls: the distinct combinations of process, thread, stack,
// function, device and stream. An event then stores its origin in 4 bytes.
package origin

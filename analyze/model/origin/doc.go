// Package origin numbers the origins of calls (process, thread, stack, function, device, stream),
// so that an event keeps its origin in 4 bytes.
package origin

// Package quality measures how complete a recording is. It counts lost calls and checks that the
// recording has the classes of calls that a report needs.
package quality

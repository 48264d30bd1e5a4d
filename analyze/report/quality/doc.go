// Package quality says how far a recording can be trusted: what was lost, which classes of events
// were recorded, and what a report needs.
package quality

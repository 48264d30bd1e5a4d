// Package quality measures how far a recording can be trusted: lost calls, classes of calls that
// were not recorded, and the classes that a report needs.
package quality

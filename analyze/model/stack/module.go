package stack

// ModuleKey identifies a build of a program or library: its path and its build ID.
type ModuleKey struct{ File, BuildID string }

package stack

type ModuleKey struct{ File, BuildID string }

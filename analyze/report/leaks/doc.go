// Package leaks reports which call sites keep memory, and judges whether they leak.
package leaks

// Package leaks reports which call sites hold memory, and classifies each as a leak or not.
package leaks

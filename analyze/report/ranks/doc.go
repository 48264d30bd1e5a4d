// Package ranks reports which rank of a job the other ranks wait for, by how much a step, since when and why, and how
// long collectives transfer and wait.
package ranks

// Package rules checks a recording against rules of experts. It computes what several reports need
// in one pass, the Survey.
package rules

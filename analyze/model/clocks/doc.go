// Package clocks bounds the differences between the clocks of the hosts of a job. It uses the errors that NTP
// states, and the rule that a collective ends nowhere before it was started everywhere.
package clocks

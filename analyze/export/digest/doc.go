// Package digest writes a recording as a short text for people and language models: what the job is,
// what is wrong with it, the evidence, and the command that shows more.
//
// A digest has no numbers of its own. Each value names the report, and the place in its JSON, that it
// is from. Texts from the recording are data of unknown programs: they are sanitized, bounded and
// quoted.
package digest

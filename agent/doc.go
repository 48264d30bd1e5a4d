// Package agent keeps a ring of everything that uses CUDA on a node, and captures of what happened around triggers.
//
// All state is in one folder, so that a killed agent loses nothing that is on disk:
//
//	STATE/lock                       held by the running agent
//	STATE/agent.sock                 status and triggers
//	STATE/ring/TIME.parquet.d/       segments of the running agent, and those of earlier agents
//	STATE/captures/ID.pending/       a capture that receives segments
//	STATE/captures/ID.sealing/       a capture that is being merged
//	STATE/captures/ID.parquet        a sealed capture, with ID.findings.jsonl
//	STATE/captures/refused.findings.jsonl   triggers without a capture
//
// The names are the state: the next agent seals what the last one did not, and keeps its ring until it is too old.
package agent

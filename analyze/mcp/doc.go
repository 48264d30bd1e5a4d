// Package mcp serves digests and reports to clients of the Model Context Protocol, such as programs that
// run language models. It reads recordings in one folder, and has no tool that writes, records or uses
// the network.
//
// Names of recordings come from a client, and texts in recordings from unknown programs: neither is trusted.
// Answers have a limited length. At most two reports run at once.
package mcp

// Package format is the recording: its row types, the Writer that makes it, the
// Reader that opens it and its readable twin. FORMAT.md describes every column.
//
// A recording is one Parquet file with one wide schema, told apart by the column
// "kind". While it is being made it is a folder of finished segment files, so that
// a crash costs at most the open segment; the same Reader opens both.
//
// The package knows Parquet and nothing of CUDA, BPF or processes: it stands on the
// ground floor and imports no other folder of gpurec.
package format

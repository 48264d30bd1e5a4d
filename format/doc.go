// Package format writes and reads recordings. FORMAT.md describes every column.
//
// A recording is one Parquet file with one wide schema. The column "kind" distinguishes the kinds
// of rows. An unfinished recording is a folder of finished segment files, so a crash loses at most
// the open segments. Open reads both forms. A Writer creates recordings, Recover finishes a
// recording that was cut off, and Recording.WriteText prints a recording as text.
//
// The package depends on Parquet. It does not depend on CUDA, BPF or processes.
package format

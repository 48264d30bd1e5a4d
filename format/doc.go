// Package format writes and reads recordings. FORMAT.md describes every column.
//
// A recording is one Parquet file with one wide schema; the column "kind" tells the kinds of rows
// apart. Until it is finished, a recording is a folder of finished segment files, so that a crash
// loses at most the open segments. Open opens both. A Writer creates recordings, Recover finishes
// one that was cut off, and Recording.WriteText prints one as text.
//
// The package knows Parquet, but nothing about CUDA, BPF or processes.
package format

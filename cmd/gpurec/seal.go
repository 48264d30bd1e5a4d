package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"github.com/gpurec/gpurec/analyze/export/findings"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
	"github.com/spf13/cobra"
)

// newSealCommand returns the hidden verb that finishes a capture. The agent and record run it as a child process, so
// that its memory is bounded apart from that of the recorder.
func newSealCommand() *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:    "seal FOLDER",
		Short:  "Finish a capture: merge its segments, and write what the rules say",
		Hidden: true,
		Long: `seal merges the segments of a capture, FOLDER, into one file in the same folder. It writes what
"gpurec analyze rules" says about it to ID.findings.jsonl, and deletes FOLDER. It may be
repeated after an interruption. The agent and "gpurec record --trigger" run it. With --to it
writes no findings, and replaces no file: "gpurec top" saves the last minutes so.`,
		Example: `  gpurec seal captures/20260101T120000Z-oom-k3f1.sealing`,
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return sealCapture(filepath.Clean(args[0]), to) },
	}
	cmd.Flags().StringVar(&to, "to", "", "write the recording to `FILE`, which must not exist")
	return cmd
}

// sealMemoryLimitBytes is the soft limit of the garbage collector of seal. sealMemoryMaxBytes is
// the memory above which the kernel refuses more.
const sealMemoryLimitBytes, sealMemoryMaxBytes = 512 << 20, 2 << 30

// sealCapture merges the folder of a capture into a file. The findings are complete before the folder is deleted, so
// that an interrupted seal is repeated. to is the path of the file, "" for the one of the capture.
func sealCapture(folder, to string) error {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(sealMemoryLimitBytes)
	}
	if err := limitChild(sealMemoryMaxBytes, 0); err != nil {
		message.Warningf("the limits of seal are not set: %v", err)
	}
	c := format.Capture{ID: filepath.Base(folder)}
	for _, state := range []string{format.PendingSuffix, format.SealingSuffix} {
		if id, ok := strings.CutSuffix(c.ID, state); ok {
			c.ID, c.State = id, state
		}
	}
	if c.State == "" {
		return message.Usagef("gpurec seal --help", "%s does not end in %s", folder, format.SealingSuffix)
	}
	dir, owner := filepath.Dir(folder), output.SudoOwner()
	path := cmp.Or(to, filepath.Join(dir, c.ID+format.CaptureSuffix))
	if _, err := os.Lstat(path); err == nil && to != "" {
		return &fs.PathError{Op: "save", Path: path, Err: fs.ErrExist}
	}
	_, damaged, err := format.Seal(folder, path, owner)
	if err != nil {
		return err
	}
	for _, d := range damaged {
		message.Warningf("skipped a damaged segment: %v", d)
	}
	if to != "" {
		return removeSealed(dir, c)
	}
	if err := writeFindings(path, filepath.Join(dir, c.ID+format.FindingsSuffix), owner); err != nil {
		message.Warningf("%s has no findings: %v", path, err) // the recording is complete
	}
	return removeSealed(dir, c)
}

// removeSealed deletes the folder of a capture that is complete.
func removeSealed(dir string, c format.Capture) error {
	captures, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer captures.Close()
	return format.RemoveCapture(captures, c)
}

// writeFindings writes what the rules say about a capture.
func writeFindings(recording, path string, owner output.Owner) error {
	rec, err := format.Open(recording)
	if err != nil {
		return err
	}
	defer rec.Close()
	t, err := timeline.Open(rec)
	if err != nil {
		return err
	}
	to, err := output.Open(path, output.Options{Force: true, Owner: owner})
	if err != nil {
		return err
	}
	defer to.Close()
	file, err := to.Create()
	if err != nil {
		return err
	}
	if err := findings.Write(file, t); err != nil {
		file.Discard()
		return fmt.Errorf("write %s: %w", path, err)
	}
	return file.Commit()
}

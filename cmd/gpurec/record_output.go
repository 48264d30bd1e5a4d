//go:build linux

package main

import (
	"cmp"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
)

// checkOutputFile returns the error that record.Start would return for the output file, and creates
// nothing.
func (f *recordFlags) checkOutputFile() error {
	path := cmp.Or(f.opt.Output, "gpurec-NAME-PID-TIME.parquet") // a new name for each recording
	return format.CheckOutput(path, format.Options{Force: f.opt.Force, Owner: f.opt.Owner})
}

// openReadyFolder opens the folder of --ready-file, so that the file can be created after gpurec
// has dropped its privileges. It does nothing without the flag.
func (f *recordFlags) openReadyFolder() (err error) {
	if f.readyFile == "" {
		return nil
	}
	f.ready, err = output.Open(f.readyFile, output.Options{Force: true, Owner: f.opt.Owner})
	return cmp.Or(message.ExplainOutput("--ready-file", false, err), message.ExplainFolder("--ready-file", err), err)
}

// createReadyFile creates the empty file of --ready-file. It does nothing without the flag.
func (f *recordFlags) createReadyFile() error {
	if f.ready == nil {
		return nil
	}
	defer f.ready.Close()
	file, err := f.ready.Create()
	if err != nil {
		return err
	}
	return file.Commit()
}

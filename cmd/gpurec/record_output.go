//go:build linux

package main

import (
	"cmp"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/format/output"
)

// checkOutput returns the error that record.Start would return for the output.
func (f *recordFlags) checkOutput() error {
	path := cmp.Or(f.opt.Output, "gpurec-NAME-PID-TIME.parquet") // the default is a new name
	return format.CheckOutput(path, format.Options{Force: f.opt.Force, Owner: f.opt.Owner})
}

// openReady checks where --ready-file will be created.
func (f *recordFlags) openReady() (err error) {
	if f.readyFile == "" {
		return nil
	}
	f.ready, err = output.Open(f.readyFile, output.Options{Force: true, Owner: f.opt.Owner})
	return cmp.Or(message.ExplainOutput("--ready-file", false, err), message.ExplainFolder("--ready-file", err), err)
}

// sayReady creates the file of --ready-file.
func (f *recordFlags) sayReady() error {
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

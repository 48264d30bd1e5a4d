//go:build linux

package main

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestManPages generates a manual page for every command and checks that it describes the command
// and its flags. The pages stay in the folder $GPUREC_MAN, if that is set: `make man` runs this
// test, so that gpurec itself needs no library for manual pages.
func TestManPages(t *testing.T) {
	testclass.Unit(t)
	dir := cmp.Or(os.Getenv("GPUREC_MAN"), t.TempDir())
	root := newRootCommand()
	root.InitDefaultCompletionCmd()
	writeManPages(t, dir, root)
	if t.Failed() {
		return
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	must(t, err)
	if len(pages) < 30 {
		t.Errorf("only %d pages: %q", len(pages), pages)
	}
	for _, name := range []string{"gpurec", "gpurec-record", "gpurec-analyze-leaks", "gpurec-completion-bash"} {
		if _, err := os.Stat(filepath.Join(dir, name+".1")); err != nil {
			t.Error(err)
		}
	}
}

// writeManPages writes the pages of a command and of the commands below it, and checks them.
func writeManPages(t *testing.T, dir string, cmd *cobra.Command) {
	t.Helper()
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			writeManPages(t, dir, sub)
		}
	}
	var page bytes.Buffer
	header := doc.GenManHeader{Section: "1", Source: "gpurec " + buildVersion(), Manual: "gpurec"}
	must(t, doc.GenMan(cmd, &header, &page))
	name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
	must(t, os.WriteFile(filepath.Join(dir, name+".1"), page.Bytes(), 0o644))

	text := strings.NewReplacer(`\-`, "-", `\fB`, "", `\fP`, "", "\n", " ").Replace(page.String())
	for _, want := range []string{strings.ToUpper(name), cmd.Short, "SYNOPSIS"} {
		if !strings.Contains(text, want) {
			t.Errorf("%s.1 has no %q:\n%.500s", name, want, page.String())
		}
	}
	for _, flag := range []string{"force", "pid", "fail-on", "top"} {
		if f := cmd.Flags().Lookup(flag); f != nil && !f.Hidden && !strings.Contains(text, "--"+flag) {
			t.Errorf("%s.1 has no flag --%s", name, flag)
		}
	}
}

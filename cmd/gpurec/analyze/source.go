package analyze

import (
	"fmt"
	"os"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/symbolize"
	"github.com/spf13/pflag"
)

// debuginfodURLsVariable is the default value of --debuginfod without =URLS. It names the
// environment variable with the server URLs, which other debuginfod clients use too.
const debuginfodURLsVariable = "$DEBUGINFOD_URLS"

// sourceFlags holds the flags for source lines of frames.
type sourceFlags struct {
	enabled    bool
	dirs       []string
	debuginfod *pflag.Flag

	finder *symbolize.Finder // finds debug files; nil without source lines
}

// addFlags adds --source, --debug-dir and --debuginfod.
func (s *sourceFlags) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&s.enabled, "source", false, "add source lines and inlined calls from debug files on this machine")
	flags.StringArrayVar(&s.dirs, "debug-dir", nil, "also search debug files in `DIR` (by build ID or module name); "+
		"repeatable")
	flags.String("debuginfod", "", "also get debug files from the debuginfod servers `URLS`")
	s.debuginfod = flags.Lookup("debuginfod")
	s.debuginfod.NoOptDefVal = debuginfodURLsVariable
}

// checkFlags parses the flags and sets s.finder. It does nothing for subcommands without these
// flags.
func (s *sourceFlags) checkFlags() error {
	if s.debuginfod == nil || !s.enabled && len(s.dirs) == 0 && !s.debuginfod.Changed {
		return nil
	}
	s.finder = &symbolize.Finder{Dirs: s.dirs}
	for _, dir := range s.dirs {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("--debug-dir: %s is not a folder", dir)
		}
	}
	if !s.debuginfod.Changed {
		return nil
	}
	urls := s.debuginfod.Value.String()
	if urls == debuginfodURLsVariable || urls == "" {
		if urls = os.Getenv("DEBUGINFOD_URLS"); strings.TrimSpace(urls) == "" {
			return fmt.Errorf("--debuginfod: no server: use --debuginfod=URLS, or set %s", debuginfodURLsVariable)
		}
	}
	client, err := symbolize.NewDebuginfod(strings.Fields(urls))
	if err != nil {
		return fmt.Errorf("--debuginfod: %w", err)
	}
	s.finder.Debuginfod = client
	return nil
}

// addSourceLines adds source lines to the frames of a recording. It prints warnings, and the
// modules without source lines.
func (s *sourceFlags) addSourceLines(t *timeline.Timeline) {
	if s.finder == nil {
		return
	}
	summary := t.AddSourceLines(s.finder)
	if summary.Err != nil {
		for line := range strings.Lines(summary.Err.Error()) {
			message.Warningf("%s", strings.TrimSuffix(line, "\n"))
		}
	}
	if n := len(summary.Without); n > 0 {
		message.Notef("no source lines for %d of %d modules: %s", n, summary.Modules, joinModuleNames(summary.Without))
	}
}

// joinModuleNames returns the names of up to three modules, separated by commas.
func joinModuleNames(modules []string) string {
	const most = 3
	var names []string
	for i, m := range modules {
		if i == most {
			return strings.Join(names, ", ") + " and others"
		}
		names = append(names, symbolize.ModuleName(m))
	}
	return strings.Join(names, ", ")
}

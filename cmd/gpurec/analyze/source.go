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

// debuginfodEnv is what --debuginfod stands for without a value, and the variable that other clients read.
const debuginfodEnv = "$DEBUGINFOD_URLS"

// sourceFlags say whether and from where frames get their source lines.
type sourceFlags struct {
	on         bool
	dirs       []string
	debuginfod *pflag.Flag

	finder *symbolize.Finder // nil: lines are not wanted
}

func (s *sourceFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&s.on, "source", false, "add source lines and inlined calls to native frames, from debug "+
		"information on this machine")
	flags.StringArrayVar(&s.dirs, "debug-dir", nil, "look for debug files in `DIR` too: .build-id/xx/yyy.debug, or "+
		"named as the module; may be given several times; implies --source")
	flags.String("debuginfod", "", "get debug files from the servers of `URLS`; implies --source")
	s.debuginfod = flags.Lookup("debuginfod")
	s.debuginfod.NoOptDefVal = debuginfodEnv
}

// check reads the flags. Commands that show no frames do not have them.
func (s *sourceFlags) check() error {
	if s.debuginfod == nil || !s.on && len(s.dirs) == 0 && !s.debuginfod.Changed {
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
	if urls == debuginfodEnv || urls == "" {
		if urls = os.Getenv("DEBUGINFOD_URLS"); strings.TrimSpace(urls) == "" {
			return fmt.Errorf("--debuginfod: no URL is given, and %s is not set", debuginfodEnv)
		}
	}
	client, err := symbolize.NewDebuginfod(strings.Fields(urls))
	if err != nil {
		return fmt.Errorf("--debuginfod: %w", err)
	}
	s.finder.Debuginfod = client
	return nil
}

// apply adds lines to the frames of a recording and tells where there are none.
func (s *sourceFlags) apply(t *timeline.Timeline) {
	if s.finder == nil {
		return
	}
	summary := t.AddSource(s.finder)
	if summary.Err != nil {
		for line := range strings.Lines(summary.Err.Error()) {
			message.Warningf("%s", strings.TrimSuffix(line, "\n"))
		}
	}
	if n := len(summary.Without); n > 0 {
		message.Notef("no source lines for %d of %d modules: %s", n, summary.Modules, someNames(summary.Without))
	}
}

// someNames lists the names of up to three modules.
func someNames(modules []string) string {
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

package terminal

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

func TestUsesColor(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		flag     string
		terminal bool
		env      string
		want     bool
	}{
		{"auto", true, "", true},
		{"auto", false, "", false},
		{"always", false, "", true},
		{"never", true, "", false},
		{"auto", true, "NO_COLOR=1", false},
		{"auto", true, "NO_COLOR=", true},
		{"always", false, "NO_COLOR=1", true},
		{"auto", false, "CLICOLOR_FORCE=1", true},
		{"auto", false, "CLICOLOR_FORCE=0", false},
		{"auto", false, "CLICOLOR_FORCE=1 NO_COLOR=1", false},
		{"never", true, "CLICOLOR_FORCE=1", false},
		{"auto", true, "CLICOLOR=0", false},
		{"auto", true, "CLICOLOR=1", true},
		{"auto", true, "TERM=dumb", false},
	} {
		for _, name := range []string{"NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE"} {
			t.Setenv(name, "")
		}
		t.Setenv("TERM", "xterm")
		for _, set := range strings.Fields(c.env) {
			name, value, _ := strings.Cut(set, "=")
			t.Setenv(name, value)
		}
		if got := shouldUseColor(c.flag, c.terminal); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestIsUTF8Locale(t *testing.T) {
	testclass.Unit(t)
	for env, want := range map[string]bool{
		"":                              true,
		"LANG=C.UTF-8":                  true,
		"LANG=de_DE.utf8":               true,
		"LANG=C":                        false,
		"LC_ALL=POSIX LANG=en_US.UTF-8": false,
		"LC_CTYPE=C.UTF-8 LANG=C":       true,
	} {
		for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
			t.Setenv(name, "")
		}
		for _, set := range strings.Fields(env) {
			name, value, _ := strings.Cut(set, "=")
			t.Setenv(name, value)
		}
		if got := isUTF8Locale(); got != want {
			t.Errorf("%s: %v", env, got)
		}
	}
}

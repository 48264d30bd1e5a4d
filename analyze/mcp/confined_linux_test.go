package mcp

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestConfinement checks that the server reads recordings below its folder only, whatever name a
// client gives.
func TestConfinement(t *testing.T) {
	testclass.Unit(t)
	outside := t.TempDir()
	folder := filepath.Join(outside, "served")
	for _, dir := range []string{filepath.Join(folder, "sub"), filepath.Join(folder, "pipe.parquet.d"), filepath.Join(outside, "jobs")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	secret := analyzetest.NewTestRecording(t)
	secret.Meta.Host = "secret-host"
	write(secret, outside, "secret.parquet")
	write(secret, filepath.Join(outside, "jobs"), "secret.parquet")
	write(analyzetest.NewTestRecording(t), filepath.Join(folder, "sub"), "run.parquet")
	for name, target := range map[string]string{
		"inside.parquet": "sub/run.parquet", "out.parquet": "../secret.parquet", "up": "..", "jobs": "../jobs",
		"absolute.parquet": filepath.Join(outside, "secret.parquet"), "passwd.parquet": "/etc/passwd",
		"zero.parquet": "/dev/zero", "memory.parquet": "/proc/self/mem", "loop.parquet": "loop.parquet",
		"dangling.parquet": "absent.parquet",
	} {
		if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, pipe := range []string{"pipe.parquet", "pipe.parquet.d/000001-call.parquet"} {
		if err := syscall.Mkfifo(filepath.Join(folder, pipe), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	c := connect(t, folder, Options{})
	c.initialize()
	for name, want := range map[string]string{
		"":                         "outside of the folder",
		"..":                       "outside of the folder",
		"../secret.parquet":        "outside of the folder",
		"sub/../../secret.parquet": "outside of the folder",
		filepath.Join(folder, "sub", "run.parquet"): "outside of the folder",
		"/etc/passwd":         "outside of the folder",
		"/dev/zero":           "outside of the folder",
		"out.parquet":         "outside of the folder",
		"up/secret.parquet":   "outside of the folder",
		"jobs/secret.parquet": "outside of the folder",
		"absolute.parquet":    "outside of the folder",
		"passwd.parquet":      "outside of the folder",
		"zero.parquet":        "outside of the folder",
		"memory.parquet":      "outside of the folder",
		"loop.parquet":        "too many levels of symbolic links",
		"dangling.parquet":    "does not exist",
		"absent.parquet":      "does not exist",
		"pipe.parquet":        "neither a regular file nor a folder of segments",
		"pipe.parquet.d":      "neither a regular file nor a folder of segments",
		"sub":                 "holds no finished segment",
		"file:///etc/passwd":  "does not exist",
		"~/run.parquet":       "does not exist",
		"sub/run.parquet\x00": "cannot be read",
	} {
		for _, tool := range []string{"digest", "report"} {
			a := object{"recording": name}
			if tool == "report" {
				a["report"] = "summary"
			}
			if text := c.mustFail(tool, a); !strings.Contains(text, want) || strings.Contains(text, "secret-host") {
				t.Errorf("%s %q: %s", tool, name, text)
			}
		}
	}
	c.mustCall("digest", object{"recording": "inside.parquet"})
	c.mustCall("digest", object{"recording": "./sub/run.parquet"})
	checkListed(t, c)
}

// checkListed checks that the listing names the recordings in the folder only.
func checkListed(t *testing.T, c *client) {
	t.Helper()
	_, result := c.call("list_recordings", object{})
	var list listing
	if err := json.Unmarshal(result.Structured, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, r := range list.Recordings {
		if r.Error == "" {
			names = append(names, r.Name)
		}
	}
	text := string(result.Structured)
	if len(names) != 2 || strings.Contains(text, "secret") || strings.Contains(text, "zero") {
		t.Errorf("%v: %s", names, text)
	}
	for _, folder := range []string{"up", "jobs", "up/jobs"} {
		text, result := c.call("list_recordings", object{"folder": folder})
		if !result.IsError && strings.Contains(string(result.Structured), "secret") {
			t.Errorf("folder %s: %s", folder, text)
		}
	}
}

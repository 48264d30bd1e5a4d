package symbolize

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
)

// DebugFile returns the path of the separate debug file that a distribution's debug package installs for a build id (see
// Object.BuildID): usr/lib/debug/.build-id/xx/yyyy.debug under the first root that has one. Roots are file system roots,
// such as "/" or, for a container, "/proc/PID/root"; without any it looks under "/". It returns "" if there is no such file
// or buildID is not at least two bytes in hexadecimal. The file is only looked for: Object.AddDebug checks that it belongs.
func DebugFile(buildID string, roots ...string) string {
	raw, err := hex.DecodeString(buildID)
	if err != nil || len(raw) < 2 {
		return "" // it may come from a foreign recording: it must not lead elsewhere
	}
	buildID = strings.ToLower(buildID)
	if len(roots) == 0 {
		roots = []string{"/"}
	}
	for _, root := range roots {
		path := filepath.Join(root, "usr/lib/debug/.build-id", buildID[:2], buildID[2:]+".debug")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

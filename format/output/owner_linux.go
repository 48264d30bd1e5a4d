package output

import (
	"os"
	"strconv"
)

// SudoOwner returns the user behind sudo. It returns the zero Owner if the process does not run as
// root, or not under sudo.
func SudoOwner() Owner {
	uid, uidErr := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, gidErr := strconv.Atoi(os.Getenv("SUDO_GID"))
	if os.Geteuid() != 0 || uidErr != nil || gidErr != nil {
		return Owner{}
	}
	return Owner{UID: uid, GID: gid, Set: true}
}

package timeline

import (
	"fmt"
	"strings"
)

// PidLabel is a process's number, name and rank.
func (t *Timeline) PidLabel(pid int32) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", pid, t.ProcessTitle(pid)))
}

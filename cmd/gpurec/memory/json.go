//go:build linux

package memory

import (
	"encoding/json"
	"io"
)

// WriteJSON writes the memory of a process as one JSON object.
func WriteJSON(out io.Writer, p Process, devices []Device) error {
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Pid     int      `json:"pid"`
		Command string   `json:"command"`
		Version string   `json:"torch_version,omitempty"`
		Devices []Device `json:"devices"`
	}{p.Pid, p.Comm, p.Version, append([]Device{}, devices...)})
}

package facts

import (
	"encoding/json"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Xid is an error that the NVIDIA driver reported in the kernel log.
type Xid struct {
	AtNs        int64
	Device, Pid int32 // NVML index; 0 if the pid is unknown
	Code        int64
	Sxid        bool // an SXid: the error of an NVSwitch
	Pci         string
	Process     string
	Text        string
	Sources     []string
	Before      bool // the driver logged the Xid before the recording started
}

func newXid(atNs int64, device, pid int32, name string, code float64, message string) Xid {
	x := Xid{
		AtNs:   atNs,
		Device: device,
		Pid:    pid,
		Code:   units.RoundInt(code),
		Sxid:   name == format.NameSXid,
		Text:   message,
	}
	var parsed format.XidFact
	if strings.HasPrefix(message, "{") && json.Unmarshal([]byte(message), &parsed) == nil {
		x.Pci, x.Process, x.Text = parsed.PCI, parsed.Process, parsed.Text
		x.Sources, x.Before = parsed.Sources, parsed.Before
	}
	return x
}

// Kind returns the driver's name for the error: "Xid", or "SXid" for an NVSwitch.
func (x *Xid) Kind() string {
	if x.Sxid {
		return "SXid"
	}
	return "Xid"
}

// Describe returns the catalog's entry for the error code. It returns false for an unknown code.
func (x *Xid) Describe() (catalog.XidEntry, bool) {
	if x.Sxid {
		return catalog.DescribeSXid(x.Code)
	}
	return catalog.DescribeXid(x.Code)
}

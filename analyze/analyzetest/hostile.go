package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/format"
)

// HostileName is a name with terminal escapes, invalid UTF-8 and markup, as a program can give
// itself and its functions.
const HostileName = "evil\x1b[2J\x07\nname\u202egnp.exe\u2028|<script>`*\xff\x9b5m\ttab"

// HostileRecording returns a recording in which every name is HostileName.
func HostileRecording(t *testing.T) *TestRecording {
	recording := NewTestRecording(t)
	recording.Meta.Host, recording.Meta.Command = HostileName, []string{HostileName}
	recording.AddRow(format.Row{Kind: format.KindProcess, Name: HostileName, Pid: 42, StartNs: Epoch})
	recording.AddRow(format.Row{Kind: format.KindThread, Name: HostileName, Pid: 42, Tid: 42, StartNs: Epoch})
	recording.AddRow(format.Row{Kind: format.KindDevice, Name: HostileName, StartNs: Epoch})
	recording.AddRow(format.Row{Kind: format.KindXid, Value: 13, Message: HostileName, StartNs: Epoch + 1})
	recording.AddRow(format.Row{Kind: format.KindNVML, Name: HostileName, Value: 13, StartNs: Epoch + 1})
	recording.AddStack(1, HostileName)
	r := SetStackAndSite(recording.AddAlloc(1, 1, 0x1000, 64), 1, HostileName)
	r.Name, r.MemoryKind, r.StackStatus = HostileName, HostileName, HostileName
	l := recording.AddCall(format.KindLaunch, HostileName, 5, 1)
	l.Kernel = HostileName
	return recording
}

// HostileNames are names that break out of a script, an attribute or a page if they are not
// escaped.
var HostileNames = []string{
	`</script><script>alert(1)</script>`,
	`"><img src=x onerror=alert(1)>`,
	`'; alert(1); //`,
	`<!--<script>`,
	`{{.Data}}`,
	"]]>\u2028\u2029",
	"\x00\x1b[31m\x7f",
	"\u202egnp.exe",
	"\xff\xfe",
	`javascript:alert(1)`,
	`&lt;b&gt;`,
	"`${alert(1)}`",
}

// HostilePageRecording returns a recording with HostileNames for the HTML page.
func HostilePageRecording(t *testing.T) *TestRecording {
	recording := NewTestRecording(t)
	recording.Meta.Host, recording.Meta.DriverVersion, recording.Meta.GpurecVersion = HostileNames[0], HostileNames[1], HostileNames[0]
	for i, name := range HostileNames {
		id := int32(i + 1)
		recording.AddRow(
			format.Row{
				Kind:    format.KindProcess,
				Name:    name,
				Pid:     42 + id,
				StartNs: Epoch,
				Device:  -1,
				Message: `{"exe":"/x"}`,
			},
		)
		recording.AddRow(format.Row{Kind: format.KindDevice, Name: name, Bytes: 1 << 36, StartNs: Epoch, Device: id})
		recording.AddRow(format.Row{Kind: format.KindNote, Message: name, StartNs: Epoch, Device: -1})
		recording.AddStack(id, name, "main"+name)
		for k := range int64(40) {
			a := recording.AddAlloc(int64(i)*Ms+k*Second, Us, int64(1<<40)+k<<30+int64(i)<<24, 2<<20)
			a.StackID, a.Site, a.StackStatus, a.Device, a.MemoryKind = id, name, format.StackComplete, id, format.MemoryDevice
			l := recording.AddCall(format.KindLaunch, name, int64(i)*Ms+k*Second+500*Ms, Us)
			l.Kernel, l.StackID, l.Site = name, id, name
		}
		failed := recording.AddCall(format.KindAPI, name, 50*Second, Us)
		failed.Result, failed.Site = 1, name
		recording.AddXid(51*Second, id, 42, 31, format.XidFact{Text: name, Process: name})
	}
	recording.AddTwoGPUs()
	return recording
}

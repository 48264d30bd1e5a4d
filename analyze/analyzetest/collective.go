package analyzetest

import (
	"encoding/json"

	"github.com/gpurec/gpurec/format"
)

// CommunicatorRow describes a communicator of a process for AddCommunicator.
type CommunicatorRow struct {
	ID, Ptr    int64
	Pid        int32
	Rank, Size int32
	Device     int32
	Name       string
	Fact       format.CommunicatorFact // How and Numbering "" are init and exact
}

// AddCommunicator adds the fact of a communicator that exists from `at` on.
func (recording *TestRecording) AddCommunicator(at int64, c CommunicatorRow) *format.Row {
	recording.t.Helper()
	if c.Fact.How == "" {
		c.Fact.How = format.CommunicatorInit
	}
	if c.Fact.Numbering == "" {
		c.Fact.Numbering = format.NumberingExact
	}
	text, err := json.Marshal(c.Fact)
	if err != nil {
		recording.t.Fatal(err)
	}
	return recording.AddRow(format.Row{
		Kind: format.KindCommunicator, Name: c.Name, StartNs: Epoch + at, Pid: c.Pid, Device: c.Device, Ptr: c.Ptr,
		Communicator: c.ID, CommunicatorRank: c.Rank, CommunicatorSize: c.Size, Message: string(text),
	})
}

// AddCollective adds an operation of NCCL, such as ncclAllReduce, on a communicator. It has float32 elements, the
// reduction sum, and the thread with the number of the process. The caller changes what differs.
func (recording *TestRecording) AddCollective(
	at, dur int64,
	name string,
	c CommunicatorRow,
	sequence, count int64,
) *format.Row {
	r := recording.AddCall(format.KindCollective, name, at, dur)
	r.Pid, r.Tid, r.Device, r.Ptr = c.Pid, c.Pid, c.Device, c.Ptr
	r.Communicator, r.CommunicatorRank, r.CommunicatorSize = c.ID, c.Rank, c.Size
	r.Sequence, r.Value, r.Bytes, r.Root = sequence, float64(count), 4*count, format.NoRoot
	r.DataType, r.Reduction = "float32", "sum"
	return r
}

// AddNCCLLaunch adds the kernel launch of an operation, or of the row of its group, as its child.
func (recording *TestRecording) AddNCCLLaunch(of *format.Row, at, dur int64, kernel string) *format.Row {
	r := recording.AddCall(format.KindLaunch, "cuLaunchKernelEx", at, dur)
	r.Pid, r.Tid, r.Device, r.Stream, r.Context = of.Pid, of.Tid, of.Device, of.Stream, of.Context
	r.ParentStartNs, r.Kernel = of.StartNs, kernel
	r.GridX, r.GridY, r.GridZ, r.BlockX, r.BlockY, r.BlockZ = 16, 1, 1, 512, 1, 1
	return r
}

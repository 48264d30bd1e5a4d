package bpf

import "runtime"

// CollectiveFunctions has a row for each probed function of NCCL, versions 2.18 to 2.30, and of libraries with the same
// API. ncclX and pncclX are one function. Argument positions are those of the public nccl.h. Send, Recv and
// collectives have their data type in Times, their reduction in Src, and their root or peer in Value: read_collective
// of collective.h reads them. Scale is 1 for collectives that NCCL counts itself.
var CollectiveFunctions = []ProbedFunction{
	// Collectives of all ranks: (send, recv, count, type, …, communicator, stream).
	counted(collective("ncclAllReduce", 2, withReduction(4), 5)),
	counted(collective("ncclReduceScatter", 2, withReduction(4), 5)),
	counted(collective("ncclReduce", 2, withReductionAndRoot(4, 5), 6)),
	counted(collective("ncclAllGather", 2, plain(), 4)),
	compound(collective("ncclAlltoAll", 2, plain(), 4)),
	compound(collective("ncclAllToAll", 2, plain(), 4)), // RCCL's spelling
	counted(collective("ncclBroadcast", 2, withRoot(4), 5)),
	compound(collective("ncclGather", 2, withRoot(4), 5)),
	compound(collective("ncclScatter", 2, withRoot(4), 5)),
	compound(counted(collective("ncclBcast", 1, withRoot(3), 4))),
	peer("ncclSend", CudaCallDecodeDECODE_SEND),
	peer("ncclRecv", CudaCallDecodeDECODE_RECV),

	// Groups.
	{
		Name:    "ncclGroupStart",
		Kind:    "communicator_call",
		Class:   CudaCallClassCLASS_COLLECTIVE,
		Decode:  CudaCallDecodeDECODE_GROUP_START,
		Columns: ColumnsNCCLObject,
	},
	{
		Name:    "ncclGroupEnd",
		Kind:    "communicator_call",
		Class:   CudaCallClassCLASS_COLLECTIVE,
		Decode:  CudaCallDecodeDECODE_GROUP_END,
		Columns: ColumnsNCCLObject,
	},
	{
		Name:    "ncclGroupSimulateEnd",
		Kind:    "communicator_call",
		Class:   CudaCallClassCLASS_COLLECTIVE,
		Decode:  CudaCallDecodeDECODE_GROUP_END,
		Columns: ColumnsNCCLObject,
	},

	// New communicators: Bytes is the number of ranks, Value the rank, Src the parent.
	withUniqueID("ncclCommInitRank", CudaCallDecodeDECODE_INIT_RANK, rankAfterID()),
	withUniqueID("ncclCommInitRankConfig", CudaCallDecodeDECODE_INIT_RANK, rankAfterID()),
	withUniqueID("ncclCommInitRankScalable", CudaCallDecodeDECODE_INIT_IDS, argIn32(2)),
	{
		Name:    "ncclCommInitAll", // Src is the array of communicators
		Kind:    "communicator_call",
		Class:   CudaCallClassCLASS_COLLECTIVE,
		Decode:  CudaCallDecodeDECODE_COMMUNICATOR,
		Effect:  CudaCallEffectEFFECT_COMMUNICATORS,
		Columns: ColumnsNCCLObject,
		Bytes:   argIn32(1),
		Src:     argIn(0),
	},
	newCommunicator("ncclCommSplit", 3, CudaArgSpec{}, CudaArgSpec{}, argIn(0)),
	newCommunicator("ncclCommShrink", 3, CudaArgSpec{}, CudaArgSpec{}, argIn(0)),
	newCommunicator("ncclCommGrow", 4, argIn32(1), argIn32(3), argIn(0)),

	// The other calls about communicators.
	communicatorCall("ncclCommFinalize", 0),
	endOfCommunicator("ncclCommDestroy"),
	endOfCommunicator("ncclCommAbort"),
	communicatorCall("ncclCommRevoke", 0),
	communicatorCall("ncclCommSuspend", 0),
	communicatorCall("ncclCommResume", 0),
	communicatorCall("ncclCommRegister", 0),
	communicatorCall("ncclCommDeregister", 0),
	communicatorCall("ncclCommWindowRegister", 0),
	communicatorCall("ncclCommWindowDeregister", 0),
	communicatorCall("ncclRedOpCreatePreMulSum", 4),
	communicatorCall("ncclRedOpDestroy", 1),
	object("ncclGetUniqueId", CudaArgSpec{}, CudaArgSpec{}),
	object("ncclMemAlloc", argOut(0), argIn(1)),
	object("ncclMemFree", argIn(0), CudaArgSpec{}),
}

// CollectiveCookie returns the attach cookie of row index row of CollectiveFunctions.
func CollectiveCookie(row int) uint16 {
	return uint16(NumDriverCookies() + len(AllocatorFunctions) + row)
}

// operationArguments are the positions of the arguments of a collective that not all have.
type operationArguments struct{ reduction, root CudaArgSpec }

func plain() operationArguments                { return operationArguments{} }
func withReduction(i uint8) operationArguments { return operationArguments{reduction: argIn32(i)} }
func withRoot(i uint8) operationArguments      { return operationArguments{root: argIn32(i)} }

func withReductionAndRoot(reduction, root uint8) operationArguments {
	return operationArguments{argIn32(reduction), argIn32(root)}
}

// collective returns the row of a collective. Its data type follows its count, its stream the communicator.
func collective(name string, count uint8, more operationArguments, communicator uint8) ProbedFunction {
	return ProbedFunction{
		Name: name, Kind: "collective", Class: CudaCallClassCLASS_COLLECTIVE,
		Decode: CudaCallDecodeDECODE_COLLECTIVE, Columns: ColumnsCollective,
		Ptr: argIn(communicator), Bytes: argIn(count), Stream: argIn(communicator + 1),
		Times: argIn32(count + 1), Src: more.reduction, Value: more.root,
	}
}

// counted marks a collective that the library counts in the communicator.
func counted(call ProbedFunction) ProbedFunction {
	call.Scale = 1
	return call
}

// compound marks a collective that may call other operations of the library. Its return shows that they have ended.
func compound(call ProbedFunction) ProbedFunction {
	call.CallsOperations = true
	return call
}

// peer returns the row of an operation with arguments (buffer, count, type, peer, communicator, stream).
func peer(name string, decode CudaCallDecode) ProbedFunction {
	call := collective(name, 1, withRoot(3), 4)
	call.Decode = decode
	return call
}

// newCommunicator returns the row of a function that stores a new communicator where argument out points to.
func newCommunicator(name string, out uint8, size, rank, parent CudaArgSpec) ProbedFunction {
	return ProbedFunction{
		Name: name, Kind: "communicator_call", Class: CudaCallClassCLASS_COLLECTIVE,
		Decode: CudaCallDecodeDECODE_COMMUNICATOR, Effect: CudaCallEffectEFFECT_COMMUNICATOR,
		Columns: ColumnsCommunicator, Ptr: argOut(out), Bytes: size, Value: rank, Src: parent,
	}
}

// withUniqueID returns the row of a function that makes a communicator of the ranks with one ncclUniqueId.
func withUniqueID(name string, decode CudaCallDecode, rank CudaArgSpec) ProbedFunction {
	call := newCommunicator(name, 0, argIn32(1), rank, CudaArgSpec{})
	call.Decode = decode
	return call
}

// rankAfterID is the rank after an argument of type ncclUniqueId, 128 bytes. x86-64 passes it in memory, so the rank
// is the third integer argument. AArch64 passes a pointer before the rank.
func rankAfterID() CudaArgSpec {
	if runtime.GOARCH == "arm64" {
		return argIn32(3)
	}
	return argIn32(2)
}

// communicatorCall returns the row of a call whose argument i is a communicator.
func communicatorCall(name string, i uint8) ProbedFunction {
	return ProbedFunction{
		Name: name, Kind: "communicator_call", Class: CudaCallClassCLASS_COLLECTIVE,
		Decode: CudaCallDecodeDECODE_COMMUNICATOR, Columns: ColumnsCommunicator, Ptr: argIn(i),
	}
}

// endOfCommunicator returns the row of a function after which another communicator may have the same address.
func endOfCommunicator(name string) ProbedFunction {
	call := communicatorCall(name, 0)
	call.Effect = CudaCallEffectEFFECT_COMMUNICATOR_END
	return call
}

// object returns the row of a call without a communicator.
func object(name string, ptr, bytes CudaArgSpec) ProbedFunction {
	return ProbedFunction{
		Name: name, Kind: "communicator_call", Class: CudaCallClassCLASS_COLLECTIVE,
		Decode: CudaCallDecodeDECODE_COMMUNICATOR, Columns: ColumnsNCCLObject, Ptr: ptr, Bytes: bytes,
	}
}

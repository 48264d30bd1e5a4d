package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// The meanings of Xids and SXids, in our own words. Codes, names, causes and actions of Xids follow
// NVIDIA's "XID Errors", edition of driver 580. Those of SXids follow the tables of the "Fabric
// Manager User Guide".

// XidCause is the set of possible causes of an Xid.
type XidCause uint8

const (
	CauseApplication XidCause = 1 << iota // a bug in the program can cause the Xid
	CauseDriver                           // the NVIDIA driver or firmware can cause the Xid
	CauseHardware                         // a defect of the GPU or the NVSwitch can cause the Xid
	CauseHost                             // the host can cause the Xid: PCIe, power, cooling, memory
	CauseOtherEvent                       // another Xid, or an action of a user, can cause the Xid
)

var xidCauseNames = []string{"application", "driver", "hardware", "host", "another error or action"}

// Names lists the causes in a fixed order, which is not their likelihood.
func (c XidCause) Names() []string {
	var list []string
	for i, name := range xidCauseNames {
		if c&(1<<i) != 0 {
			list = append(list, name)
		}
	}
	return list
}

// XidEntry explains an error code: its name and meaning, possible causes, and the recommended
// action.
type XidEntry struct {
	Name, Meaning string
	Causes        XidCause
	Action        string
}

// Actions that apply to several codes.
const (
	adviceDebugCUDAKernel = "check the launches below; run the program under compute-sanitizer, or with " +
		"CUDA_DEVICE_WAITS_ON_EXCEPTION=1 under cuda-gdb; if both find nothing, suspect the driver " +
		"or the hardware"
	adviceRestartProgram = "restart the program; if the error also occurs with other programs, report it to NVIDIA"
	adviceResetGPU       = "end all programs on the GPU and reset it (nvidia-smi -r), or reboot; if the error " +
		"returns, have the hardware checked"
	adviceResetAndReport = "reset the GPU (nvidia-smi -r), or reboot; if the error returns, update the driver " +
		"and report it with nvidia-bug-report.sh"
	adviceWatchOnly  = "no action now; watch for more of them"
	adviceReadXid154 = "check the accompanying Xid 154 for the recovery action; the text has the unit, link " +
		"and error bits for NVIDIA's decoding table"
)

var xidEntries = map[int64]XidEntry{
	8: {
		"GPU stopped processing",
		"a channel made no progress for too long",
		CauseApplication | CauseDriver | CauseHardware,
		adviceRestartProgram,
	},
	11: {
		"invalid push buffer",
		"commands for the GPU were not valid",
		CauseApplication | CauseDriver | CauseHardware | CauseHost,
		adviceRestartProgram,
	},
	13: {
		"graphics engine exception", "a kernel did something illegal: mostly an out-of-bounds access, " +
			"also an illegal instruction or register",
		CauseApplication | CauseDriver | CauseHardware, adviceDebugCUDAKernel,
	},
	14: {"injected error", "an error was injected for a test", CauseOtherEvent, adviceWatchOnly},
	25: {
		"illegal push buffer",
		"commands for the GPU were not valid",
		CauseApplication | CauseDriver | CauseHardware | CauseHost,
		adviceRestartProgram,
	},
	31: {
		"GPU memory page fault", "a kernel or copy used an unmapped address: freed memory, a bad " +
			"pointer, an index out of bounds",
		CauseApplication | CauseDriver | CauseHardware, adviceDebugCUDAKernel,
	},
	32: {
		"invalid push buffer stream", "the unit that fetches commands over PCIe received corrupted " +
			"data; the cause is mostly the quality of the PCIe link, rarely the program",
		CauseDriver | CauseHardware | CauseHost, "restart the program; look for PCIe errors in the kernel log " +
			"and at the replay counter, check seating, riser and cable",
	},
	37: {"driver firmware error", "the graphics firmware received an unknown command", CauseDriver, adviceWatchOnly},
	38: {"driver firmware error", "the graphics firmware hung until its watchdog fired", CauseDriver, "no " +
		"action for a single error; if it returns, update the driver and report it"},
	42: {"video engine error", "the video image compositor " +
		"reported an error", CauseDriver | CauseHardware, adviceRestartProgram},
	43: {
		"GPU stopped processing", "the program caused a fault and was stopped on the GPU; the GPU " +
			"itself is healthy", CauseApplication | CauseDriver,
		"fix the program: its first CUDA error and the launches before it are below",
	},
	44: {
		"fault during context switch",
		"the graphics engine faulted during a context switch",
		CauseDriver | CauseHardware,
		adviceWatchOnly,
	},
	45: {
		"preemptive cleanup", "the driver removed a program's work from the GPU because it ended or " +
			"because of an earlier error; Ctrl-C, kill and resets also cause it",
		CauseOtherEvent | CauseApplication, "look for an Xid just before this one and follow its advice; alone, " +
			"this Xid only means that a program was ended",
	},
	46: {"GPU stopped processing", "the GPU did not answer in time", CauseDriver | CauseHardware, adviceResetGPU},
	48: {
		"double-bit ECC error", "the GPU's memory had an error that ECC could not correct; the program " +
			"that used the memory got an error", CauseHardware,
		"end all programs and reset the GPU, or reboot; then check `gpurec analyze gpu` for pending row " +
			"remappings; if the SRAM error threshold is exceeded, run NVIDIA's field diagnostics",
	},
	54: {
		"no auxiliary power",
		"the power connector of the board is not connected",
		CauseHost,
		"connect the auxiliary power of the board",
	},
	56: {
		"display engine error",
		"the display engine reported an error",
		CauseDriver | CauseHardware,
		adviceRestartProgram,
	},
	58: {"GPU memory stability error", "the GPU's memory did not " +
		"work reliably", CauseHardware | CauseHost, adviceResetGPU},
	60: {
		"video processor exception",
		"the security or video processor reported an error",
		CauseApplication | CauseDriver | CauseHardware,
		adviceRestartProgram,
	},
	61: {"internal microcontroller breakpoint", "the power management controller of the GPU stopped at " +
		"a breakpoint (older drivers only)", CauseDriver | CauseHardware | CauseHost, adviceResetAndReport},
	62: {"internal microcontroller halt", "the power management controller of the GPU " +
		"stopped working", CauseDriver | CauseHardware | CauseHost, adviceResetGPU},
	63: {
		"memory row remapped or page retired", "the GPU found a defect in its memory and will no longer " +
			"use that part; the remapping succeeded", CauseHardware,
		"no immediate action; reset the idle GPU to apply the remapping (see `gpurec analyze gpu`)",
	},
	64: {
		"row remapping or page retirement failed",
		"the GPU could not disable a defective part of its memory",
		CauseHardware | CauseDriver,
		"drain the GPU and reset it; if remapping fails again, have the GPU replaced",
	},
	66: {"illegal access by driver", "the driver accessed a forbidden register", CauseDriver, "no action " +
		"for a single error; if it returns, report it"},
	67: {"illegal access by driver", "the driver accessed a forbidden register", CauseDriver, "no action " +
		"for a single error; if it returns, report it"},
	69: {
		"graphics engine class error", "the program sent invalid commands to the " +
			"graphics engine", CauseApplication | CauseDriver | CauseHardware,
		"restart the program; check that its CUDA libraries match the driver; if the error returns, report it",
	},
	74: {
		"NVLink error", "a link to another GPU or an NVSwitch failed; the other end may be the cause, " +
			"and then all its neighbors report this Xid", CauseHardware | CauseHost | CauseOtherEvent,
		"reset the GPUs of the link, or reboot; check nvidia-smi nvlink -e and the Xids of the other " +
			"GPU; if the error returns, have link and board checked",
	},
	78: {"vGPU start error", "a virtual GPU could not be started", CauseDriver, "use matching versions of " +
		"host driver, guest driver and firmware"},
	79: {
		"GPU has fallen off the bus", "the GPU no longer responds on PCIe: the link went down, or a " +
			"power or temperature problem stopped it", CauseHardware | CauseHost | CauseDriver,
		"reboot, with a power cycle if needed; look for PCIe errors in the kernel and board logs, check " +
			"seating, power and cooling; if the error returns, have the GPU replaced",
	},
	80: {
		"corrupted data sent to the GPU",
		"commands arrived with a wrong checksum",
		CauseDriver | CauseHardware | CauseHost,
		adviceRestartProgram,
	},
	81: {"VGA subsystem error", "the VGA part of the GPU failed", CauseHardware, adviceResetGPU},
	86: {
		"optical flow engine exception",
		"the optical flow engine reported an error",
		CauseApplication | CauseDriver | CauseHardware,
		adviceRestartProgram,
	},
	92: {
		"high rate of single-bit ECC errors",
		"ECC corrected many memory errors; no data was lost",
		CauseHardware | CauseDriver,
		"no action now; watch for Xid 48, 63 and 64, and have the GPU checked if the errors continue",
	},
	93: {
		"InfoROM wear limit",
		"the GPU's InfoROM memory has reached a configured write limit",
		CauseOtherEvent | CauseHardware,
		adviceWatchOnly,
	},
	94: {
		"contained memory error", "an uncorrectable memory error affected one program only; the others " +
			"are not affected", CauseHardware,
		"restart the program with Xid 45 or CUDA error 226; reset the GPU when it is idle",
	},
	95: {
		"uncontained memory error",
		"an uncorrectable memory error may have affected all programs on the GPU",
		CauseHardware,
		"end all programs and reset the GPU before starting new programs; if the error returns, have " +
			"the GPU replaced",
	},
	108: {
		"NVLink address translation error",
		"an access by NVLink could not be translated at the other GPU",
		CauseApplication | CauseDriver | CauseHardware,
		adviceDebugCUDAKernel,
	},
	109: {
		"context switch timeout", "the GPU could not switch contexts in time because of a kernel that " +
			"cannot be interrupted, or a hang", CauseApplication | CauseDriver | CauseHardware | CauseHost,
		"reset the GPU (nvidia-smi -r); check the launches below for a kernel that never ends; if the " +
			"error also occurs with other programs, report it",
	},
	110: {
		"security fault", "a security check of the GPU failed; rare without " +
			"broken hardware", CauseHardware | CauseDriver,
		"undo recent changes of the hardware and power the machine off and on; if the error returns, " +
			"have the GPU checked",
	},
	119: {
		"GSP timeout", "the GPU's system processor (GSP) did not answer the " +
			"driver in time", CauseDriver | CauseHardware,
		"reset the GPU, or power cycle the machine; if the error returns, update driver and firmware " +
			"and report it",
	},
	120: {
		"GSP error", "the firmware on the GPU's system processor (GSP) failed", CauseDriver | CauseHardware,
		"reset the GPU, or power cycle the machine; if the error returns, update driver and firmware " +
			"and report it",
	},
	121: {"C2C link error", "errors on the link to the Grace CPU were corrected", CauseHardware, "no " +
		"action now; reset the GPU when it is idle, so that the link is trained again"},
	122: {"SPI read failure", "the driver could not read the " +
		"board's flash memory", CauseDriver | CauseHardware, adviceResetGPU},
	123: {"SPI write failure", "the driver could not write the " +
		"board's flash memory", CauseDriver | CauseHardware, adviceResetGPU},
	124: {"SPI erase failure", "the driver could not erase the " +
		"board's flash memory", CauseDriver | CauseHardware, adviceResetGPU},
	125: {"InfoROM failure", "the file system of the GPU's InfoROM " +
		"memory is damaged", CauseDriver | CauseHardware, adviceResetGPU},
	136: {"NVLink training failed", "a link could not be established", CauseHardware | CauseHost, adviceResetGPU},
	137: {"NVLink privilege error", "another GPU refused an NVLink access to its memory, mostly because " +
		"of a bad address in a kernel", CauseApplication | CauseDriver | CauseHardware, adviceDebugCUDAKernel},
	140: {
		"uncorrected ECC error",
		"the driver saw uncorrectable errors and could not disable the affected memory",
		CauseHardware | CauseDriver,
		"reset the GPU (nvidia-smi -r); if the error returns, have the GPU replaced",
	},
	141: {"CUDA fast path error", "an optimized path of the " +
		"driver failed", CauseDriver | CauseApplication, adviceWatchOnly},
	143: {"GPU initialization error", "the GPU could not be initialized", CauseHardware | CauseDriver, adviceResetGPU},
	144: {
		"NVLink SAW error",
		"a unit of NVLink 5 (SAW) reported an error",
		CauseHardware | CauseDriver,
		adviceReadXid154,
	},
	145: {"NVLink RLW error", "the receiving side of NVLink 5 (RLW) reported an error, for example bad " +
		"addresses of remote accesses", CauseHardware | CauseDriver | CauseApplication, adviceReadXid154},
	146: {
		"NVLink TLW error",
		"the sending side of NVLink 5 (TLW) reported an error",
		CauseHardware | CauseDriver,
		adviceReadXid154,
	},
	147: {"NVLink TREX error", "a unit of NVLink 5 (TREX) " +
		"reported an error", CauseHardware | CauseDriver, adviceReadXid154},
	148: {
		"NVLink NVLPW_CTRL error",
		"the control unit of NVLink 5 (NVLPW_CTRL) reported an error",
		CauseHardware | CauseDriver,
		adviceReadXid154,
	},
	149: {"NVLink NETIR error", "the link layer of NVLink 5 (NETIR) reported an error: a link went " +
		"down, or had too many bit errors", CauseHardware | CauseHost | CauseDriver, adviceReadXid154},
	150: {
		"NVLink MSE error",
		"the management unit of NVLink 5 (MSE) reported an error",
		CauseHardware | CauseDriver,
		adviceReadXid154,
	},
	151: {"key rotation error", "confidential computing: the key rotation failed", CauseDriver, "restart " +
		"the virtual machine"},
	154: {
		"recovery action changed", "the recovery action that other Xids require changed; the text names " +
			"it: none, GPU reset, node reboot, drain", CauseOtherEvent,
		"follow the recovery action in the text, and check the Xids just before this one for the reason",
	},
	155: {"NVLink software error", "a link was taken down, " +
		"possibly on purpose", CauseDriver | CauseOtherEvent, adviceResetAndReport},
	156: {"resource retirement", "the GPU disables a defective part of itself", CauseHardware, "reset the " +
		"GPU when it is idle, so that the change takes effect"},
	157: {
		"resource retirement failed",
		"a defective part of the GPU could not be disabled",
		CauseHardware,
		"programs may continue; expect the error again, and have the GPU checked",
	},
	158: {"GPU fatal timeout", "the GPU did not respond in time and " +
		"cannot continue", CauseHardware | CauseDriver, adviceResetGPU},
	160: {"channel retirement", "memory channels were disabled", CauseHardware, adviceWatchOnly},
	161: {"channel retirement failed", "memory channels could not be disabled", CauseHardware, adviceWatchOnly},
	167: {"PCIe fatal timeout", "PCIe requests got no response in time", CauseHardware | CauseHost, adviceResetGPU},
	168: {"less GPU memory", "errors in a protected region of memory; ECC is off", CauseHardware, "enable " +
		"ECC, so that rows can be remapped"},
	171: {
		"uncorrectable DRAM error",
		"the memory error of an Xid 48 was in the GPU's DRAM",
		CauseHardware,
		"follow the advice for the accompanying Xid 48",
	},
	172: {
		"uncorrectable SRAM error",
		"the memory error of an Xid 48 was in SRAM inside the GPU chip",
		CauseHardware,
		"follow the advice for the accompanying Xid 48",
	},
}

// xidCodesByEngine lists codes of engines that a GPU has several of. Each engine's codes are in the
// order of its instances.
var xidCodesByEngine = []struct {
	codes []int64
	name  string
}{
	{[]int64{39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135}, "copy engine"},
	{[]int64{68, 83, 84, 88, 89, 96, 97, 98}, "video decoder (NVDEC)"},
	{[]int64{47, 65, 73, 142}, "video encoder (NVENC)"},
	{[]int64{82, 99, 100, 101, 102, 103, 104, 105}, "JPEG decoder"},
	{[]int64{139}, "optical flow engine"},
}

// DescribeXid explains an Xid. It returns false for a code that is not in the catalog.
func DescribeXid(code int64) (e XidEntry, known bool) {
	if e, known = xidEntries[code]; known {
		return e, true
	}
	for _, engine := range xidCodesByEngine {
		if i := slices.Index(engine.codes, code); i >= 0 {
			return XidEntry{
				fmt.Sprintf(
					"%s %d exception",
					engine.name,
					i,
				),
				"an engine of the GPU (" + engine.name + ") received bad commands or addresses, or failed",
				CauseApplication | CauseDriver | CauseHardware,
				adviceRestartProgram,
			}, true
		}
	}
	return unknownXidEntry, false
}

var unknownXidEntry = XidEntry{
	Name: "unknown code", Meaning: "this version of gpurec does not know the code",
	Action: "look it up in NVIDIA's \"XID Errors\" (docs.nvidia.com/deploy/xid-errors)",
}

// SXids by severity, as the Fabric Manager User Guide groups them: not fatal, fatal for a link, and
// always fatal.
var (
	HarmlessSXids = []int64{
		10001,
		10002,
		10005,
		11012,
		11021,
		11022,
		11023,
		12021,
		12023,
		15008,
		15011,
		19049,
		19055,
		19057,
		19059,
		19062,
		19065,
		19068,
		19071,
		20001,
		22013,
		24001,
		24002,
		24003,
	}
	LinkFatalSXids = []int64{
		11001,
		11009,
		11013,
		11018,
		11019,
		11020,
		12001,
		12002,
		12022,
		12024,
		12025,
		12026,
		12027,
		12030,
		12031,
		12032,
		14017,
		15001,
		15006,
		15009,
		15010,
		15012,
		15013,
		19047,
		19048,
		19054,
		19056,
		19058,
		19060,
		19061,
		19063,
		19064,
		19066,
		19067,
		19069,
		19070,
		20034,
		22012,
		24004,
		24005,
		24006,
		24007,
	}
	AlwaysFatalSXids = []int64{
		12020,
		22003,
		22011,
		23001,
		23002,
		23003,
		23004,
		23005,
		23006,
		23007,
		23008,
		23009,
		23010,
		23011,
		23012,
		23013,
		23014,
		23015,
		23016,
		23017,
	}
)

// SXidEntries has the SXids with a more specific explanation than their unit.
var SXidEntries = map[int64]XidEntry{
	10003: {
		"unhandled interrupt",
		"the NVSwitch raised an unhandled interrupt",
		CauseHardware | CauseDriver,
		"reset all GPUs and NVSwitches of the machine",
	},
	10004: {
		"NVSwitch is hot",
		"the NVSwitch is above its temperature limit and slows down",
		CauseHost,
		"check the cooling of the machine",
	},
	10005: {"NVSwitch has cooled down", "the temperature is below the limit again", CauseHost, "no " +
		"action; find the cause of the heat"},
	11004: {
		"access refused",
		"a packet addressed memory that its sender may not access",
		CauseApplication | CauseDriver,
		"with a virtual machine: restart it, and check the routing of the fabric; otherwise " +
			"restart the programs",
	},
	12028: {
		"access refused by a GPU",
		"a GPU refused an access and reported its own Xid",
		CauseApplication | CauseDriver | CauseOtherEvent,
		"with a virtual machine: restart it; otherwise check the Xids of the GPUs",
	},
	19084: {
		"NVLink heartbeat lost",
		"the other end of a link does not respond; a fatal SXid accompanies this one",
		CauseHardware | CauseOtherEvent,
		"reset all GPUs and NVSwitches of the machine",
	},
	20001: {
		"NVLink replay",
		"a packet was sent again after bit errors, which were corrected",
		CauseHardware | CauseHost,
		"no action unless throughput suffers",
	},
	20009: {
		"NVLink error rate",
		"many bit errors on a link in a short time",
		CauseHardware | CauseHost,
		"check the link and its connectors; NVLink may be slow",
	},
	20012: {
		"NVLink CRC errors",
		"the number of bit errors on a link is above its limit",
		CauseHardware | CauseHost,
		"check the mechanical connections of the link",
	},
	20034: {"NVLink went down", "a link was lost", CauseHardware | CauseHost | CauseOtherEvent, "reset the GPUs " +
		"of the link, or all GPUs if the link connects switches; the GPU at its end reports Xid 74"},
	24007: {
		"NVLink answer timed out",
		"a GPU did not respond to a packet in time",
		CauseHardware | CauseOtherEvent,
		"reset the affected GPUs; check the Xids of the GPU that did not respond",
	},
}

// nvswitchUnitsByCode maps the code's thousands to the unit of the NVSwitch.
var nvswitchUnitsByCode = map[int64]string{
	10: "host interface",
	11: "port, incoming side",
	12: "port, outgoing side",
	14: "port, transaction state",
	15: "port, routing",
	19: "NVLink transaction layer",
	20: "NVLink data link layer",
	22: "NVLink microcontroller",
	23: "crossbar",
	24: "port, tracking of requests",
	25: "NVLink control",
	26: "system processor",
	27: "cable controller",
	28: "cable temperature",
	29: "port, multicast",
	30: "port, reductions",
}

// DescribeSXid explains an SXid, an error of an NVSwitch. It returns false for a code that is not
// in the catalog.
func DescribeSXid(code int64) (XidEntry, bool) {
	unit, known := nvswitchUnitsByCode[code/1000]
	if !known {
		return unknownXidEntry, false
	}
	e := XidEntry{"NVSwitch: " + unit, "an error in the NVSwitch's " + unit, CauseHardware, "the Fabric " +
		"Manager's log says whether the error was fatal; if it was, reset the affected GPUs"}
	specific := false
	if own, ok := SXidEntries[code]; ok {
		e, specific = own, true
		e.Name = "NVSwitch: " + e.Name
	}
	switch {
	case slices.Contains(HarmlessSXids, code):
		e.Meaning += " (not fatal)"
		if !specific {
			e.Action = "no action: the error was corrected; watch for more of them"
		}
	case slices.Contains(LinkFatalSXids, code):
		e.Meaning += " (fatal for the link)"
		if !specific {
			e.Action = "reset the affected GPUs, or all GPUs and NVSwitches if the link connects switches"
		}
	case slices.Contains(AlwaysFatalSXids, code):
		e.Meaning += " (always fatal)"
		e.Action = "reboot the machine"
	case !specific:
		e.Meaning = strings.TrimSpace(e.Meaning) + "; gpurec does not know this code"
		return e, false
	}
	return e, true
}

// minorXids are codes of corrected errors, of notices, and of the cleanup after a program that was killed.
var minorXids = []int64{45, 63, 92, 121, 154}

// IsSevereXid reports whether an Xid usually ends a program or needs an action on the GPU. Unknown codes are severe.
func IsSevereXid(code int64) bool {
	e, known := DescribeXid(code)
	return !known || e.Action != adviceWatchOnly && !slices.Contains(minorXids, code)
}
